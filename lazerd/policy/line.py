"""The line of pending jobs: by gang size, each size in the policy's order.

A job that does not fit closes the line for all of its size, so only the first of each size is
looked at in a cycle, however many wait. Sorted lists (sortedcontainers) give the first, add,
remove, and count those before a key, each in logarithmic time.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heapreplace

from sortedcontainers import SortedList

from lazerd.model.job import Job

Entry = tuple[float, int, Job]
"""(key, number of submission, job): the number settles ties, so jobs are never compared."""


class Line:
    """Pending jobs; the key of a job must not change while it is here."""

    def __init__(self) -> None:
        self._sizes: dict[int, SortedList] = {}
        self.count = 0

    def add(self, job: Job) -> None:
        """The job joins at its place."""
        entries = self._sizes.get(job.spec.gpus)
        if entries is None:
            entries = self._sizes[job.spec.gpus] = SortedList()
        entries.add((job.key, job.seq, job))
        self.count += 1

    def remove(self, job: Job) -> None:
        """The job leaves the line."""
        self._sizes[job.spec.gpus].remove((job.key, job.seq, job))
        self.count -= 1

    def __contains__(self, job: Job) -> bool:
        entries = self._sizes.get(job.spec.gpus)
        return entries is not None and (job.key, job.seq, job) in entries

    def __iter__(self) -> Iterator[Job]:
        """All jobs, by size: for validation and reports only."""
        for entries in self._sizes.values():
            for entry in entries:
                yield entry[2]

    def heads(self) -> Heads:
        """The first of each size, in order; what is taken from the line meanwhile is passed."""
        return Heads([entries for entries in self._sizes.values() if entries])

    def first_of(self, gpus: int, count: int) -> list[Job]:
        """The first `count` jobs of one size."""
        return [entry[2] for entry in self._sizes[gpus][:count]]

    def gpus_before(self, key: float) -> int:
        """GPUs that all jobs with a smaller key need together."""
        bound = (key, -1)
        return sum(
            gpus * entries.bisect_left(bound) for gpus, entries in self._sizes.items() if entries
        )


class Heads:
    """A walk over a line that looks at one job of each size, in the policy's order."""

    def __init__(self, sizes: list[SortedList]) -> None:
        self._heap: list[tuple[float, int, Job, SortedList]] = [
            (*entries[0], entries) for entries in sizes
        ]
        heapify(self._heap)

    def first(self) -> Job | None:
        """The job to look at, or None when all sizes are closed."""
        return self._heap[0][2] if self._heap else None

    def next_of_size(self) -> None:
        """The first has left the line: the one behind it takes its place."""
        entries = self._heap[0][3]
        if entries:
            heapreplace(self._heap, (*entries[0], entries))
        else:
            heappop(self._heap)

    def close_size(self) -> None:
        """Nobody of the first's size can start."""
        heappop(self._heap)
