"""The running jobs: by when they will end, and those that may be preempted, best victim first.

Most ranks of a running job drift with time, but not their order within a group: of jobs with
equally many GPUs the remaining GPU time shrinks at one rate, so the order by expected end stays.
Each group is a list sorted by such a key that does not drift, and the few groups are merged when
victims are asked for. No list is longer than the cluster has GPUs, so plain lists serve.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from lazerd.model.job import Job
from lazerd.policy.orders import Order

Entry = tuple[float, int, Job]
"""(rank or end, number of submission, job); the number is negative among victims."""

EXACT, BOUND = 0, 1
"""Of equal numbers an exact one comes first: else all equals are looked at before one is told."""


class Running:
    """Jobs in set-up or at work; those told to go are not here any more."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self.ends: list[Entry] = []
        self._groups: dict[int, list[Entry]] = {}

    def add(self, job: Job) -> None:
        """The job was placed; it is nobody's victim yet."""
        insort(self.ends, (job.end_s, job.seq, job))

    def remove(self, job: Job) -> None:
        """The job ended, or was told to go."""
        _discard(self.ends, (job.end_s, job.seq, job))
        self.spare(job)

    def expose(self, job: Job) -> None:
        """From now on the job may be preempted."""
        job.exposed = True
        job.group = self._order.group(job)
        job.rank = self._order.rank(job)
        insort(self._groups.setdefault(job.group, []), (job.rank, -job.seq, job))

    def spare(self, job: Job) -> None:
        """From now on the job may not be preempted."""
        if job.exposed:
            job.exposed = False
            _discard(self._groups[job.group], (job.rank, -job.seq, job))

    def ends_at(self, job: Job, end_s: float) -> None:
        """More is known about when the job ends, or about its rank."""
        _discard(self.ends, (job.end_s, job.seq, job))
        job.end_s = end_s
        insort(self.ends, (end_s, job.seq, job))
        if job.exposed:
            self.spare(job)
            self.expose(job)

    def victims(self, now_s: float) -> Iterator[tuple[float, Job]]:
        """(value, job) of those that may be preempted, the greatest value first.

        The bound of a group's order leaves out the work that would be lost, so an exact value is
        yielded only once no bound exceeds it. Of equals the one submitted first goes
        first: in the last level of LAS the youngest would be preempted again and again (mean
        completion time on Philly, 384 GPUs: 52,470 s instead of 29,598).
        """
        value, bound = self._order.value, self._order.bound
        lists = [entries for entries in self._groups.values() if entries]
        heap = [(-bound(e[-1][2], now_s), BOUND, i, len(e) - 1) for i, e in enumerate(lists)]
        heapify(heap)
        while heap:
            negative, kind, which, position = heappop(heap)
            job = lists[which][position][2]
            if kind == BOUND:
                heappush(heap, (-value(job, now_s), EXACT, which, position))
                if position > 0:
                    behind = lists[which][position - 1][2]
                    heappush(heap, (-bound(behind, now_s), BOUND, which, position - 1))
            else:
                yield -negative, job

    def greatest_value(self, now_s: float) -> float:
        """Of all that may be preempted; minus infinity when there is none."""
        return next(self.victims(now_s), (float("-inf"), None))[0]

    def exposed(self) -> Iterator[Job]:
        """Jobs that may be preempted, in no order of value: for validation."""
        for entries in self._groups.values():
            for entry in entries:
                yield entry[2]


def _discard(entries: list[Entry], entry: Entry) -> None:
    index = bisect_left(entries, entry)
    if entries[index][1] != entry[1]:
        raise LookupError(f"{entry[2].job_id} is not where its key says")
    del entries[index]
