"""2D-LAS: least attained service first, by levels of attained GPU time (Tiresias, NSDI 2019).

A job is in the level that its attained GPU-seconds reach; the lower level goes first, and within a
level who was submitted first. Preemption is between levels only. A job that has waited `PATIENCE`
times as long as it has run is promoted to the first level (Tiresias, section 3.4, "starvation").
"""

from __future__ import annotations

from bisect import bisect_right

from lazerd.model.job import Job
from lazerd.policy.orders import NEVER, Steady

LEVELS_GPU_S = (3_250.0, 7_200.0, 18_000.0)
"""Where the levels end: `queue_limit` of the 2D-LAS in the Tiresias simulator (its `jobs.py`)."""
PATIENCE = 8.0
"""`solve_starvation` of the same."""


class Las(Steady):
    """Levels of attained GPU time."""

    name = "las"
    preempts = True

    def key(self, job: Job) -> float:
        job.level = bisect_right(LEVELS_GPU_S, job.attained_gpu_s)
        return float(job.level)

    def rank(self, job: Job) -> float:
        return float(job.level)

    def changes_at(self, job: Job) -> float:
        if job.level == len(LEVELS_GPU_S):
            return NEVER
        missing_gpu_s = LEVELS_GPU_S[job.level] - job.attained_gpu_s
        return job.placed_s + missing_gpu_s / job.spec.gpus

    def advance(self, job: Job) -> None:
        job.level += 1

    def promoted_at(self, job: Job) -> float:
        if job.level == 0:
            return NEVER
        return job.since_s + PATIENCE * job.attained_gpu_s / job.spec.gpus

    def promote(self, job: Job) -> None:
        job.attained_gpu_s = 0.0
