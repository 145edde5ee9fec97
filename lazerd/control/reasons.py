"""Why each pending job waits, for many at once.

To weigh what a job could do takes the engine a tenth of a millisecond; for ten thousand that is a
second, during which nobody else is served. The engine looks at the first job of each gang size
only, and those behind it wait for it: so the first of each size are asked about, and of the others
it is said that others are before them.
"""

from __future__ import annotations

from lazerd.engine import Engine
from lazerd.model.job import Job, Phase
from lazerd.model.reasons import Reason

FIRST = 16
"""Jobs of each gang size whose reason is asked for."""

_BY_PHASE = {Phase.HELD: Reason.HELD, Phase.PROMISED: Reason.AWAITING_VICTIMS}


class Reasons:
    """The reasons as of one instant: make a new one for each answer."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._first: dict[int, frozenset[str]] = {}
        self._fits: dict[int, bool] = {}

    def of(self, job_id: str) -> str:
        """One token; "" for a job that does not wait, or that is not known yet."""
        job = self._engine.floor.jobs.get(job_id)
        if job is None:
            return ""
        reason = _BY_PHASE.get(job.phase)
        if reason is None and job.phase is Phase.PENDING:
            reason = self._of_pending(job)
        return reason.value if reason is not None else ""

    def _of_pending(self, job: Job) -> Reason | None:
        if job.job_id in self._first_of(job.gpus):
            return self._engine.reason(job.job_id)
        return Reason.PRIORITY if self._fits_at_all(job.gpus) else Reason.TOO_BIG

    def _first_of(self, gpus: int) -> frozenset[str]:
        if gpus not in self._first:
            first = self._engine.floor.line.first_of(gpus, FIRST)
            self._first[gpus] = frozenset(job.job_id for job in first)
        return self._first[gpus]

    def _fits_at_all(self, gpus: int) -> bool:
        if gpus not in self._fits:
            self._fits[gpus] = self._engine.floor.cluster.fits_empty(gpus)
        return self._fits[gpus]
