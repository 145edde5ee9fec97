"""Times at which something happens by itself, for jobs that are still as they were when it was set.

A heap with lazy deletion: an alarm carries the job's stamp, and one whose stamp is old is dropped
when it comes to the top.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from heapq import heappop, heappush

from lazerd.model.job import Job
from lazerd.policy.orders import NEVER


class Alarm(IntEnum):
    """What the time is of."""

    OVERRUN = 0
    """A running job should have ended by now."""
    EXPOSED = 1
    """A running job loses its exemption."""
    RANK = 2
    """A running job comes to another level."""
    DUE = 3
    """A waiting job has waited as long as a preemption would have cost."""
    PROMOTED = 4
    """A waiting job has waited so long that its level changes."""
    LOOK = 5
    """A moment that a decision was put off to."""
    ELDER = 6
    """A waiting job has waited too long."""


class Alarms:
    """Alarms of jobs, the earliest first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, int, Job]] = []

    def set(self, at_s: float, alarm: Alarm, job: Job) -> None:
        """Ring for this job at `at_s`, unless it changes before; infinity: never."""
        if at_s != NEVER:
            heappush(self._heap, (at_s, job.seq, alarm, job.stamp, job))

    def ring(self, now_s: float) -> Iterator[tuple[Alarm, Job]]:
        """Those that are due, each of them once."""
        while self._heap and self._heap[0][0] <= now_s:
            _, _, alarm, stamp, job = heappop(self._heap)
            if stamp == job.stamp:
                yield Alarm(alarm), job

    def next_s(self) -> float:
        """When the next one rings; infinity: never."""
        while self._heap and self._heap[0][3] != self._heap[0][4].stamp:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else NEVER
