"""What is known of each job, for people and for a daemon that comes back: one record a job. Pure.

The engine decides by its own state; a record is what became of a job, in words and times that
`lazer queue`, `explain` and `history` show. Both are made from the same events, cycle by cycle.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import msgspec

from lazerd.backend.protocol import Launch
from lazerd.model.actions import Action, Kill, Preempt, Start
from lazerd.model.cluster import Placement
from lazerd.model.events import (
    Cancelled,
    Event,
    Finished,
    Gone,
    Held,
    Released,
    SetupEnded,
    Stuck,
    Submitted,
)
from lazerd.model.job import JobSpec

State = Literal["pending", "held", "setup", "working", "leaving", "stuck", "ended"]


class Record(msgspec.Struct, kw_only=True):
    """One job. Times are seconds since the epoch, `*_gpu_s` GPU-seconds over all its starts."""

    number: int
    uid: int
    spec: JobSpec
    launch: Launch | None = None
    signal_number: int = 15
    state: State = "pending"
    since_s: float = 0.0
    """Since when it is in this state."""
    attempt: int = 0
    placement: Placement = ()
    placed_s: float | None = None
    working_s: float | None = None
    told_s: float | None = None
    """When it was told to go, this time."""
    ended_s: float | None = None
    exit_code: int | None = None
    detail: str = ""
    where: str = ""
    evidence: str = ""
    held_because: str = ""
    cancelled: bool = False
    killed: bool = False
    preemptions: int = 0
    futile: int = 0
    """Preemptions before its set-up had ended."""
    work_s: float = 0.0
    """Work in the placements before this one, as far as it survived."""
    safe_s: float = 0.0
    """Work that a report has said to be safe."""
    safe_at_s: float | None = None
    setup_gpu_s: float = 0.0
    work_gpu_s: float = 0.0
    leaving_gpu_s: float = 0.0

    @property
    def job_id(self) -> str:
        """Its name."""
        return self.spec.job_id

    @property
    def holds_gpus(self) -> bool:
        """Whether it was placed and is not gone."""
        return self.state in ("setup", "working", "leaving", "stuck")

    def worked_s(self, now_s: float) -> float:
        """Work over all its placements, until now or until it was told to go."""
        if self.working_s is None:
            return self.work_s
        until_s = now_s if self.told_s is None else self.told_s
        return self.work_s + max(0.0, until_s - self.working_s)

    def enter(self, state: State, now_s: float) -> None:
        """A new state; the GPU time of the one before is counted."""
        gpu_s = (now_s - self.since_s) * self.spec.gpus
        if self.state == "setup":
            self.setup_gpu_s += gpu_s
        elif self.state == "working":
            self.work_gpu_s += gpu_s
        elif self.state in ("leaving", "stuck"):
            self.leaving_gpu_s += gpu_s
        self.state, self.since_s = state, now_s


class Book:
    """All living jobs, by id, and those that ended in the cycle that is on."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self._changed: dict[str, Record] = {}

    def add(self, record: Record) -> None:
        """A job that is submitted in the cycle that comes, or that was stored before."""
        self.records[record.job_id] = record

    def take(self, events: Iterable[Event], actions: Iterable[Action], now_s: float) -> None:
        """What a cycle has changed."""
        for event in events:
            if (told := _TOLD.get(type(event))) is not None:
                self._apply(told, event, now_s)
        for action in actions:
            if (done := _DONE.get(type(action))) is not None:
                self._apply(done, action, now_s)

    def note(self, job_id: str, facts: Mapping[str, Any]) -> None:
        """Fields of a record that no event sets."""
        record = self.records.get(job_id)
        if record is not None and facts:
            for name, value in facts.items():
                setattr(record, name, value)
            self._changed[job_id] = record

    def changed(self) -> list[Record]:
        """The records that have changed since the last call; who has ended is forgotten."""
        changed, self._changed = list(self._changed.values()), {}
        for record in changed:
            if record.state == "ended":
                self.records.pop(record.job_id, None)
        return changed

    def _apply(self, step: Callable[[Record, Any, float], None], what: Any, now_s: float) -> None:
        record = self.records.get(what.job.job_id if hasattr(what, "job") else what.job_id)
        if record is not None:
            step(record, what, now_s)
            self._changed[record.job_id] = record


def _submitted(record: Record, event: Submitted, now_s: float) -> None:
    record.since_s = now_s


def _setup_ended(record: Record, event: SetupEnded, now_s: float) -> None:
    if record.state == "setup":
        record.working_s = now_s
        record.enter("working", now_s)


def _finished(record: Record, event: Finished, now_s: float) -> None:
    record.work_s = record.worked_s(now_s)
    _end(record, now_s)


def _gone(record: Record, event: Gone, now_s: float) -> None:
    if event.saved_s is not None:
        record.work_s = event.saved_s
    elif record.spec.checkpoint_s is None:
        record.work_s = record.worked_s(now_s)  # it saves when it is told to go
    else:
        record.work_s = max(record.work_s, record.safe_s)
    if record.cancelled:
        _end(record, now_s)
        return
    record.preemptions += 1
    record.futile += record.working_s is None
    _vacate(record)
    record.enter("pending", now_s)


def _stuck(record: Record, event: Stuck, now_s: float) -> None:
    record.enter("stuck", now_s)


def _cancelled(record: Record, event: Cancelled, now_s: float) -> None:
    record.cancelled = True
    if not record.holds_gpus:
        _end(record, now_s)


def _held(record: Record, event: Held, now_s: float) -> None:
    record.enter("held", now_s)


def _released(record: Record, event: Released, now_s: float) -> None:
    record.held_because = ""
    record.enter("pending", now_s)


def _start(record: Record, action: Start, now_s: float) -> None:
    record.attempt += 1
    record.placement = action.placement
    record.placed_s, record.working_s, record.told_s = now_s, None, None
    record.evidence = record.where = ""
    record.killed = False
    record.safe_s = record.work_s
    record.enter("setup", now_s)


def _told_to_go(record: Record, action: Preempt | Kill, now_s: float) -> None:
    record.told_s = now_s
    record.enter("leaving", now_s)


def _end(record: Record, now_s: float) -> None:
    record.ended_s = now_s
    _vacate(record)
    record.enter("ended", now_s)


def _vacate(record: Record) -> None:
    record.placement = ()
    record.placed_s = record.working_s = record.told_s = None
    record.where = ""


_TOLD: dict[type, Callable[[Record, Any, float], None]] = {
    Submitted: _submitted,
    SetupEnded: _setup_ended,
    Finished: _finished,
    Gone: _gone,
    Stuck: _stuck,
    Cancelled: _cancelled,
    Held: _held,
    Released: _released,
}
_DONE: dict[type, Callable[[Record, Any, float], None]] = {
    Start: _start,
    Preempt: _told_to_go,
    Kill: _told_to_go,
}


def encode(record: Record) -> str:
    """As JSON; infinity as Python writes it (an interval between checkpoints may be endless)."""
    return json.dumps(msgspec.to_builtins(record), separators=(",", ":"))


def decode(text: str) -> Record:
    """A record of `encode`. Raises `ValueError`."""
    return msgspec.convert(json.loads(text), Record)
