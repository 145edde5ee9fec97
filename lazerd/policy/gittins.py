"""2D-Gittins: the job first that is likeliest to end soon, given the GPU time that it has attained.

With X the GPU-seconds of a job, known by the finished ones, and a what it has attained, its rank is

    min over d of  E[min(X - a, d) | X > a] / P(X - a <= d | X > a)

GPU-seconds to spend per completion to expect (Gittins 1979; 2D in Tiresias, NSDI 2019, 3.2.2). With
a restart to pay it is added to the numerator for who waits, which is the index with a cost of
switching. `a` is work, without set-ups, and counts by levels as in LAS: were it exact, two jobs
would take turns at every second of age, each time for a set-up.
"""

from __future__ import annotations

from bisect import bisect_right

from lazerd.model.job import Job, Phase
from lazerd.policy.orders import NEVER, Steady
from lazerd.predict.durations import Durations, bucket_of, lower_edge

ENOUGH = 30
"""Finished jobs before the index is trusted; until then the rank is what was attained."""
REFIT = 1.1
"""The table is made anew when a tenth more jobs have finished: often at first, then seldom."""
FIRST_GPU_S = 2_048.0
GROWTH = 2.0
LEVELS_GPU_S = tuple(FIRST_GPU_S * GROWTH**level for level in range(24))
"""Where the levels end: half an hour of one GPU, then doubling, to a thousand GPUs for a year."""


class Gittins(Steady):
    """Ranks from the service of finished jobs."""

    name = "gittins"
    preempts = True

    def __init__(self, restart_counts: bool) -> None:
        self._restart_counts = restart_counts
        self._seen = Durations()
        self._table = list(LEVELS_GPU_S)
        self._refit_at = ENOUGH

    def key(self, job: Job) -> float:
        job.level = bisect_right(LEVELS_GPU_S, job.reached_s * job.spec.gpus)
        rank = self._table[job.level]
        if self._restart_counts:
            rank += job.setup_s * job.spec.gpus
        return rank

    def rank(self, job: Job) -> float:
        return self._table[job.level]

    def changes_at(self, job: Job) -> float:
        if job.phase is not Phase.WORKING or job.level == len(LEVELS_GPU_S) - 1:
            return NEVER
        return job.working_s + LEVELS_GPU_S[job.level] / job.spec.gpus - job.done_s

    def advance(self, job: Job) -> None:
        job.level += 1

    def learn(self, job: Job, total_s: float) -> None:
        self._seen.add(total_s * job.spec.gpus)
        if self._seen.count >= self._refit_at:
            self._refit_at = int(self._seen.count * REFIT) + 1
            self._table = ranks(self._seen)


def ranks(seen: Durations) -> list[float]:
    """The rank at the start of each level, GPU-seconds."""
    starts = (0.0, *LEVELS_GPU_S)
    return [_rank(seen, start, end) for start, end in zip(starts, LEVELS_GPU_S, strict=False)]


def _rank(seen: Durations, attained: float, level_end: float) -> float:
    start = bucket_of(attained)
    beyond = sum(seen.counts[start:])
    best, ended, spent = NEVER, 0, 0.0
    for bucket in range(start, len(seen.counts)):
        ended += seen.counts[bucket]
        spent += seen.sums[bucket] - seen.counts[bucket] * attained
        if ended:
            rest = (beyond - ended) * (lower_edge(bucket + 1) - attained)
            best = min(best, (max(spent, 0.0) + rest) / ended)
    return best if best != NEVER else level_end
