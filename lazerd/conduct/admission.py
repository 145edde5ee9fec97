"""Whether the engine may be told an event now. Pure.

Events come from people and from backends, and may be late: a job is cancelled as it ends. What
cannot be any more is turned away here, so that a cycle's events are all or none.
"""

from __future__ import annotations

from collections.abc import Iterable

from lazerd.engine import ALLOWED, Engine
from lazerd.model.events import (
    Cancelled,
    Event,
    Evicted,
    Finished,
    Gone,
    Held,
    Released,
    SetupEnded,
    Submitted,
)
from lazerd.model.job import Phase

_LEADS_TO: dict[type, dict[Phase, Phase]] = {
    SetupEnded: {Phase.SETUP: Phase.WORKING},
    Finished: dict.fromkeys(Phase, Phase.ENDED),
    Gone: {Phase.LEAVING: Phase.PENDING},
    Held: dict.fromkeys((Phase.PENDING, Phase.PROMISED), Phase.HELD),
    Released: {Phase.HELD: Phase.PENDING},
    Evicted: dict.fromkeys((Phase.SETUP, Phase.WORKING), Phase.LEAVING),
    Cancelled: {
        Phase.HELD: Phase.ENDED,
        Phase.PENDING: Phase.ENDED,
        Phase.PROMISED: Phase.ENDED,
        Phase.SETUP: Phase.LEAVING,
        Phase.WORKING: Phase.LEAVING,
    },
}
"""What an event makes of a job before the cycle decides anything."""


class Gate:
    """Lets events of one cycle through, in order."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._phases: dict[str, Phase] = {}

    def admits(self, event: Event) -> bool:
        """Whether the event can be, after those that were admitted before it."""
        kind = type(event)
        if isinstance(event, Submitted):
            known = self.phase(event.job.job_id) is not None
            if not known:
                self._phases[event.job.job_id] = Phase.PENDING
            return not known
        allowed = ALLOWED.get(kind)
        if allowed is None:
            return True
        job_id: str = event.job_id  # type: ignore[union-attr]
        phase = self.phase(job_id)
        if phase is None or phase not in allowed or phase is Phase.ENDED:
            return False
        self._phases[job_id] = self._after(job_id, kind, phase)
        return True

    def phase(self, job_id: str) -> Phase | None:
        """Where a job is by now; None: unknown."""
        if job_id in self._phases:
            return self._phases[job_id]
        job = self._engine.floor.jobs.get(job_id)
        return None if job is None else job.phase

    def _after(self, job_id: str, kind: type, phase: Phase) -> Phase:
        after = _LEADS_TO.get(kind, {}).get(phase, phase)
        job = self._engine.floor.jobs.get(job_id)
        was_cancelled = job is not None and job.cancelled
        return Phase.ENDED if kind is Gone and was_cancelled else after


def admitted(engine: Engine, events: Iterable[Event]) -> list[Event]:
    """Those of a cycle's events that can be, in order."""
    gate = Gate(engine)
    return [event for event in events if gate.admits(event)]
