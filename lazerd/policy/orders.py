"""The orders: who goes first. One number for a waiting job, one for a running one.

A waiting job has a **key**, constant while it waits; the smaller goes first. A running job has a
**value** of the same unit; it may be preempted for a job whose key is smaller. Where the value
takes the restart into account it is what is left after paying for it, so a preemption that would
not even pay its own restart is never considered, and two jobs can never preempt each other in
turn: having been preempted, a job's key is at least the value that it was preempted for.

| order | key of a waiting job | value of a running job |
|---|---|---|
| FIFO | time of submission | the same |
| SJF | expected work | the same |
| SRTF | remaining work + set-up | remaining time - restart |
| SRSF | (remaining work + set-up) x GPUs | (remaining time - restart) x GPUs |

Restart: the set-up again, and the work since the last safe checkpoint. SRTF and SRSF as in
Tiresias (NSDI 2019, section 2.2), with the set-up added, which a job must pay whoever starts it.
"""

from __future__ import annotations

from typing import Protocol

from lazerd.model.job import Job
from lazerd.predict.loss import lost_s
from lazerd.predict.remaining import LEAST_S

NEVER = float("inf")


def work_left_s(job: Job) -> float:
    """Work that a waiting job still needs, as far as is known; seconds."""
    return max(job.estimate_s - job.done_s, LEAST_S)


class Order(Protocol):
    """Who goes first, and who stands behind whom."""

    name: str
    preempts: bool

    def key(self, job: Job) -> float:
        """The place in line of a waiting job; the smaller goes first."""
        ...

    def group(self, job: Job) -> int:
        """Running jobs of one group keep their order while time passes."""
        ...

    def rank(self, job: Job) -> float:
        """The order within a group, the best victim last; does not drift."""
        ...

    def bound(self, job: Job, now_s: float) -> float:
        """What the value is at most; falls within a group as the rank does."""
        ...

    def value(self, job: Job, now_s: float) -> float:
        """What a running job's key would be, less its restart."""
        ...

    def changes_at(self, job: Job) -> float:
        """When a running job's rank changes by the passing of time; infinity: never."""
        ...

    def advance(self, job: Job) -> None:
        """That time has come."""
        ...

    def promoted_at(self, job: Job) -> float:
        """When a waiting job's key changes for having waited; infinity: never."""
        ...

    def promote(self, job: Job) -> None:
        """The job has waited so long."""
        ...

    def learn(self, job: Job, total_s: float) -> None:
        """The job ended after `total_s` of work."""
        ...


class Steady:
    """An order in which nothing changes by the passing of time; base of the simple ones."""

    name = "steady"
    preempts = False

    def key(self, job: Job) -> float:
        raise NotImplementedError

    def group(self, job: Job) -> int:
        return 0

    def rank(self, job: Job) -> float:
        return self.key(job)

    def bound(self, job: Job, now_s: float) -> float:
        return job.rank

    def value(self, job: Job, now_s: float) -> float:
        return self.bound(job, now_s)

    def changes_at(self, job: Job) -> float:
        return NEVER

    def advance(self, job: Job) -> None:
        return None

    def promoted_at(self, job: Job) -> float:
        return NEVER

    def promote(self, job: Job) -> None:
        return None

    def learn(self, job: Job, total_s: float) -> None:
        return None


class Fifo(Steady):
    """First in, first out."""

    name = "fifo"

    def key(self, job: Job) -> float:
        return job.spec.submitted_s


class Sjf(Steady):
    """Shortest job first, by its whole work."""

    name = "sjf"

    def key(self, job: Job) -> float:
        return job.estimate_s


class Srtf(Steady):
    """Shortest remaining time first."""

    name = "srtf"
    preempts = True

    def __init__(self, restart_counts: bool) -> None:
        self._restart_counts = restart_counts

    def key(self, job: Job) -> float:
        return work_left_s(job) + job.setup_s

    def rank(self, job: Job) -> float:
        return job.end_s - job.setup_s if self._restart_counts else job.end_s

    def bound(self, job: Job, now_s: float) -> float:
        return job.rank - now_s

    def value(self, job: Job, now_s: float) -> float:
        if not self._restart_counts or job.spec.checkpoint_s is None:
            return job.rank - now_s
        return job.rank - now_s - lost_s(job, now_s)


class Srsf(Srtf):
    """Shortest remaining service first: time by GPUs."""

    name = "srsf"

    def key(self, job: Job) -> float:
        return (work_left_s(job) + job.setup_s) * job.spec.gpus

    def group(self, job: Job) -> int:
        return job.spec.gpus

    def bound(self, job: Job, now_s: float) -> float:
        return (job.rank - now_s) * job.spec.gpus

    def value(self, job: Job, now_s: float) -> float:
        return Srtf.value(self, job, now_s) * job.spec.gpus
