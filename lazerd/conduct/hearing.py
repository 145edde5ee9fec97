"""From what a backend reports to what the engine is told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import trio

from lazerd.backend import protocol as said
from lazerd.conduct.conductor import Conductor
from lazerd.memory.book import Record
from lazerd.model import events as told

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Heard:
    """An event for the engine, and what its job's record says from then on, if it can be."""

    event: told.Event
    facts: Mapping[str, Any] = field(default_factory=dict)
    record: Record | None = None


class Hearing:
    """Listens to one backend. `lost` says why it cannot be reached; "" when it can."""

    def __init__(self, conductor: Conductor, uid_of: Callable[[str], int]) -> None:
        self.lost = ""
        self.guests: dict[str, said.Running] = {}
        """Jobs that run there and are not steered: they came before the daemon."""
        self._conductor = conductor
        self._book, self._capacity = conductor.book, conductor.capacity
        self._uid_of = uid_of
        self._number = 0

    async def listen(self, reports: trio.MemoryReceiveChannel[said.Report | said.Together]) -> None:
        """Until the backend falls silent for ever."""
        async for report in reports:
            self.hear([report, *_waiting(reports)])

    def hear(self, reports: Iterable[said.Report | said.Together]) -> None:
        """Reports of one instant."""
        found: list[Heard] = []
        for report in _flat(reports):
            log.info("%s", report)
            heard = _HEAR[type(report)](self, report)
            if heard is not None:
                found.append(heard)
        self._conductor.note(
            *(heard.event for heard in found),
            records=[heard.record for heard in found if heard.record is not None],
            facts=[heard.facts for heard in found],
        )

    # --- one method for each report: what the engine is told of it ------------------------------

    def _submission(self, report: said.Submission) -> Heard | None:
        spec = report.spec
        if spec.job_id in self._book.records:
            return None
        self._number += 1
        record = Record(
            number=int(spec.submitted_s * 1000) + self._number,
            uid=self._uid_of(spec.user),
            spec=spec,
            signal_number=report.signal_number,
            since_s=spec.submitted_s,
        )
        return Heard(told.Submitted(spec), record=record)

    def _withdrawn(self, report: said.Withdrawn) -> Heard:
        return Heard(told.Cancelled(report.job_id))

    def _not_eligible(self, report: said.NotEligible) -> Heard:
        return Heard(told.Held(report.job_id), {"held_because": report.why})

    def _eligible(self, report: said.Eligible) -> Heard:
        return Heard(told.Released(report.job_id))

    def _began(self, report: said.Began) -> None:
        self._book.note(report.job_id, {"where": report.where})
        self._conductor.note()

    def _running(self, report: said.Running) -> None:
        """Left alone until it ends: nobody knows how long it has been in set-up."""
        if report.spec.job_id not in self.guests:
            self.guests[report.spec.job_id] = report
            self._move_in(report, +1)

    def _working(self, report: said.Working) -> Heard:
        evidence = report.evidence.detail or report.evidence.rung.name
        return Heard(told.SetupEnded(report.job_id), {"evidence": evidence})

    def _saved(self, report: said.Saved) -> Heard | None:
        record = self._book.records.get(report.job_id)
        if record is None:
            return None
        at_s = self._conductor.now_s() - report.age_s
        work_s = record.worked_s(at_s)
        facts = {"safe_s": max(work_s, record.safe_s), "safe_at_s": at_s}
        return Heard(told.CheckpointSafe(report.job_id, work_s), facts)

    def _ended(self, report: said.Ended) -> Heard | None:
        if (guest := self.guests.pop(report.job_id, None)) is not None:
            self._move_in(guest, -1)
            return None
        facts = {"exit_code": report.exit_code, "detail": report.detail}
        return Heard(told.Finished(report.job_id), facts)

    def _gone(self, report: said.Gone) -> Heard:
        record = self._book.records.get(report.job_id)
        facts: dict[str, Any] = {"killed": report.killed}
        saved_s: float | None = None
        if record is not None and record.cancelled:
            facts["exit_code"] = report.exit_code
        if record is not None and report.killed:
            # It did not come to its end: what was safe before is all that is known to survive.
            saved_s = max(record.work_s, record.safe_s)
        return Heard(told.Gone(report.job_id, saved_s), facts)

    def _stuck(self, report: said.Stuck) -> Heard:
        return Heard(told.Stuck(report.job_id), {"detail": report.why})

    def _node_up(self, report: said.NodeUp) -> None:
        node = self._capacity.node(report.node)
        node.offered, node.drained, node.why = report.gpus, False, ""
        node.name = report.name or node.name

    def _node_drained(self, report: said.NodeDrained) -> None:
        node = self._capacity.node(report.node)
        node.drained, node.why = True, report.why

    def _backend_lost(self, report: said.BackendLost) -> None:
        self.lost = report.why or "it cannot be reached"

    def _backend_back(self, report: said.BackendBack) -> None:
        self.lost = ""

    # --- small steps ---------------------------------------------------------------------------

    def _move_in(self, guest: said.Running, sign: int) -> None:
        for node, gpus in guest.placement:
            self._capacity.node(node).guests += sign * gpus


def _waiting(
    reports: trio.MemoryReceiveChannel[said.Report | said.Together],
) -> Iterator[said.Report | said.Together]:
    """What else has been said by now."""
    while True:
        try:
            yield reports.receive_nowait()
        except (trio.WouldBlock, trio.EndOfChannel):
            return


def _flat(reports: Iterable[said.Report | said.Together]) -> Iterator[said.Report]:
    for report in reports:
        if isinstance(report, said.Together):
            yield from report.reports
        else:
            yield report


_HEAR: dict[type, Callable[[Hearing, Any], Heard | None]] = {
    said.Submission: Hearing._submission,
    said.Withdrawn: Hearing._withdrawn,
    said.NotEligible: Hearing._not_eligible,
    said.Eligible: Hearing._eligible,
    said.Began: Hearing._began,
    said.Running: Hearing._running,
    said.Working: Hearing._working,
    said.Saved: Hearing._saved,
    said.Ended: Hearing._ended,
    said.Gone: Hearing._gone,
    said.Stuck: Hearing._stuck,
    said.NodeUp: Hearing._node_up,
    said.NodeDrained: Hearing._node_drained,
    said.BackendLost: Hearing._backend_lost,
    said.BackendBack: Hearing._backend_back,
}
