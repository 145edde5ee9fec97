"""No job is passed over for ever: one that has waited too long goes to the front, and stays.

Orders by size let any number of small jobs pass a large one, and a large gang needs many GPUs at
one time. An elder goes before all others, whatever its class; what comes free is kept for it, and
once it runs nobody preempts it. Patience is generous, because each elder is an exception to an
order that is better for the mean: a week is longer than 99 of 100 jobs of Philly take from
submission to end under SRSF, and ten times its own length is what a long job can bear.

Elders hold a thirty-second of the GPUs at most, or are one gang alone; the others stay in line
until their turn comes, in the order in which their patience ended. Where work comes faster than it
is done everybody waits for a week in the end, and without a bound the order would give way to first
come, first served.
"""

from __future__ import annotations

from collections import deque

from lazerd.model.job import Job, Phase
from lazerd.policy.orders import work_left_s

WEEK_S = 7 * 86_400.0
LENGTHS = 10.0
SHARE = 1 / 32
"""Of all GPUs, for elders. 2D-Gittins without estimates on Philly, 384 GPUs, set-up 1,200 s: in the
mean 24.9 h without a bound, 10.1 with 1/8, 9.6 with 1/16, 9.4 with 1/32, 9.5 without elders."""


def patience_s(job: Job) -> float:
    """How long a job waits, at a stretch, before it is an elder; seconds."""
    return WEEK_S + LENGTHS * (job.setup_s + work_left_s(job))


class Elders:
    """Those who are elders, and those whose patience has ended and who are next."""

    def __init__(self) -> None:
        self._elders: list[Job] = []
        self._next: deque[Job] = deque()

    def has_waited(self, job: Job) -> None:
        """The job's patience has ended."""
        self._next.append(job)

    def admit(self, gpus: int, now_s: float) -> Job | None:
        """The next elder, if there is room for it among `gpus` GPUs of the cluster."""
        while self._next and not _still_waits(self._next[0], now_s):
            self._next.popleft()
        if not self._next:
            return None
        self._elders = [job for job in self._elders if job.phase is not Phase.ENDED]
        held = sum(job.spec.gpus for job in self._elders)
        if held and held + self._next[0].spec.gpus > gpus * SHARE:
            return None
        self._elders.append(self._next[0])
        return self._next.popleft()


def _still_waits(job: Job, now_s: float) -> bool:
    pending = job.phase is Phase.PENDING and not job.is_elder
    return pending and now_s >= job.since_s + patience_s(job)
