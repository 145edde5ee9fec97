"""What has been counted since the daemon began: preemptions, deferrals, GPU time. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from lazerd.memory.book import Record
from lazerd.model.actions import Action, Kill, Preempt, Start
from lazerd.model.events import Cancelled, Event, Submitted

DEFERRED = "Deferred"
"""What the reasons of jobs whose preemption is put off begin with."""
LOOKED_AT = 50
"""Jobs whose reason is looked at in a cycle: what is put off is near the head of the line."""
PHASES = ("setup", "work", "leaving")


class Tally:
    """Watches every cycle. `reasons_of` tells why jobs wait, after the cycle."""

    def __init__(self, reasons_of: Callable[[Sequence[Record]], Sequence[str]]) -> None:
        self.submitted = 0
        self.starts = 0
        self.preemptions: Counter[str] = Counter()
        """By kind: for a job, by an operator's order, because it was cancelled."""
        self.futile = 0
        """Preemptions, but for an operator's order, of jobs that were in set-up."""
        self.deferrals = 0
        self.deferrals_ended: Counter[str] = Counter()
        """By how: the job started as others ended, it preempted after all, it was cancelled."""
        self.gpu_s: dict[str, float] = dict.fromkeys(PHASES, 0.0)
        self._reasons_of = reasons_of
        self._deferred: set[str] = set()
        self._counted: dict[str, tuple[float, ...]] = {}
        self._awaiting: set[str] = set()

    def watch(
        self,
        now_s: float,
        events: Sequence[Event],
        actions: Sequence[Action],
        changed: Sequence[Record],
    ) -> None:
        """One cycle."""
        self._count_events(events)
        in_setup = {record.job_id for record in changed if record.working_s is None}
        for action in actions:
            self._count(action, in_setup)
        for record in changed:
            self._count_gpu_time(record)
        self.look(record for record in changed if record.state == "pending")

    def look(self, records: Iterable[Record]) -> None:
        """Which of these pending jobs are put off by now; the first few are enough."""
        few = list(islice(records, LOOKED_AT))
        for record, reason in zip(few, self._reasons_of(few), strict=True):
            if reason.startswith(DEFERRED) and record.job_id not in self._deferred:
                self._deferred.add(record.job_id)
                self.deferrals += 1

    def _count_events(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, Submitted):
                self.submitted += 1
            elif isinstance(event, Cancelled):
                self._end_deferral(event.job_id, "cancelled")

    def _count(self, action: Action, in_setup: set[str]) -> None:
        if isinstance(action, Start):
            self.starts += 1
            how = "preemption" if action.job_id in self._awaiting else "completion"
            self._awaiting.discard(action.job_id)
            self._end_deferral(action.job_id, how)
        elif isinstance(action, Kill):
            self.preemptions["cancelled"] += 1
        elif isinstance(action, Preempt):
            self.preemptions["ordered" if action.beneficiary is None else "for_a_job"] += 1
            if action.beneficiary is not None:
                self._awaiting.add(action.beneficiary)
                self.futile += action.job_id in in_setup

    def _end_deferral(self, job_id: str, how: str) -> None:
        if job_id in self._deferred:
            self._deferred.discard(job_id)
            self.deferrals_ended[how] += 1

    def _count_gpu_time(self, record: Record) -> None:
        now = (record.setup_gpu_s, record.work_gpu_s, record.leaving_gpu_s)
        before = self._counted.get(record.job_id, (0.0, 0.0, 0.0))
        for phase, later, earlier in zip(PHASES, now, before, strict=True):
            self.gpu_s[phase] += later - earlier
        if record.state == "ended":
            self._counted.pop(record.job_id, None)
        else:
            self._counted[record.job_id] = now

    def report(self) -> dict[str, object]:
        """As JSON, for `lazer status`."""
        return {
            "submitted": self.submitted,
            "starts": self.starts,
            "preemptions": dict(self.preemptions),
            "futile_preemptions": self.futile,
            "deferrals": self.deferrals,
            "deferrals_ended": dict(self.deferrals_ended),
            "gpu_s": {phase: round(self.gpu_s[phase], 3) for phase in PHASES},
        }
