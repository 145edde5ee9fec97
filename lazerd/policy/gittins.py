"""2D-Gittins: the job first that is likeliest to end soon, given the GPU time that it has attained.

With X the GPU-seconds of a job, known by the finished ones, and a what it has attained, its rank is

    min over d of  E[min(X - a, d) | X > a] / P(X - a <= d | X > a)

GPU-seconds to spend per completion to expect (Gittins 1979; 2D in Tiresias, NSDI 2019, 3.2.2). With
a restart to pay it is added to the numerator for who waits, which is the index with a cost of
switching. `a` is work, without set-ups, and known by buckets of a histogram, so a rank changes only
where a bucket ends.
"""

from __future__ import annotations

from lazerd.model.job import Job, Phase
from lazerd.policy.orders import NEVER, Steady
from lazerd.predict.durations import Durations, bucket_of, lower_edge

ENOUGH = 30
"""Finished jobs before the index is trusted; until then the rank is what was attained."""
REFIT = 1.1
"""The table is made anew when a tenth more jobs have finished: often at first, then seldom."""


class Gittins(Steady):
    """Ranks from the service of finished jobs."""

    name = "gittins"
    preempts = True

    def __init__(self, restart_counts: bool) -> None:
        self._restart_counts = restart_counts
        self._seen = Durations()
        self._table: list[float] = []
        self._refit_at = ENOUGH

    def key(self, job: Job) -> float:
        job.level = bucket_of(job.done_s * job.spec.gpus)
        rank = self._rank_of(job.level)
        if self._restart_counts:
            rank += job.setup_s * job.spec.gpus
        return rank

    def rank(self, job: Job) -> float:
        return self._rank_of(job.level)

    def changes_at(self, job: Job) -> float:
        if job.phase is not Phase.WORKING:
            return NEVER
        return job.working_s + lower_edge(job.level + 1) / job.spec.gpus - job.done_s

    def advance(self, job: Job) -> None:
        job.level += 1

    def learn(self, job: Job, total_s: float) -> None:
        self._seen.add(total_s * job.spec.gpus)
        if self._seen.count >= self._refit_at:
            self._refit_at = int(self._seen.count * REFIT) + 1
            self._table = indices(self._seen)

    def _rank_of(self, level: int) -> float:
        if level < len(self._table):
            return self._table[level]
        return lower_edge(level + 1)


def indices(seen: Durations) -> list[float]:
    """The rank at the start of each bucket, GPU-seconds; for the last ones, where few are left."""
    return [_index(seen, bucket) for bucket in range(len(seen.counts))]


def _index(seen: Durations, start: int) -> float:
    attained = lower_edge(start)
    beyond = sum(seen.counts[start:])
    best, ended, spent = NEVER, 0, 0.0
    for bucket in range(start, len(seen.counts)):
        ended += seen.counts[bucket]
        spent += seen.sums[bucket] - seen.counts[bucket] * attained
        if ended:
            rest = (beyond - ended) * (lower_edge(bucket + 1) - attained)
            best = min(best, (max(spent, 0.0) + rest) / ended)
    return best if best != NEVER else lower_edge(start + 1)
