"""Simulated time: what will happen, in order. Instants are whole seconds."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from enum import IntEnum

Entry = tuple[int, int, int, int]


class What(IntEnum):
    """What can happen to a job that was placed; at one instant, in this order."""

    FINISH = 0
    GONE = 1
    SETUP_END = 2


class Clock:
    """A queue of things that will happen to jobs.

    Nothing is ever taken out early: an entry carries the number of the placement that it is about,
    and whoever takes it out ignores it if the job has been placed again since, or has left.
    """

    def __init__(self) -> None:
        self._heap: list[Entry] = []

    def next_s(self) -> int | None:
        """When the next thing happens."""
        return self._heap[0][0] if self._heap else None

    def add(self, at_s: int, what: What, job: int, placement: int) -> None:
        """Something will happen."""
        heapq.heappush(self._heap, (at_s, what, job, placement))

    def due(self, now_s: int) -> Iterator[Entry]:
        """Take out all that happens at `now_s`, in a fixed order."""
        heap = self._heap
        while heap and heap[0][0] == now_s:
            yield heapq.heappop(heap)
