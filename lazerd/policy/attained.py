"""2D-LAS: least attained service first, by levels of attained GPU time (Tiresias, NSDI 2019).

A job is in the level that its attained GPU-seconds reach; the lower level goes first, and within a
level who was submitted first. Preemption is between levels only. A job that has waited `PATIENCE`
times as long as it has worked is promoted to the first level (Tiresias, section 3.4, "starvation").
All its work counts there, not only that since its last promotion: else a job is promoted again
after moments, and on an overloaded cluster the jobs do little but take turns in set-up.
Only work counts as attained: where set-up did, a gang whose set-up fills the first level would be
preempted before it worked, promoted, preempted again, and never end.
"""

from __future__ import annotations

from bisect import bisect_right

from lazerd.model.job import Job, Phase
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
        if job.phase is not Phase.WORKING or job.level == len(LEVELS_GPU_S):
            return NEVER
        missing_gpu_s = LEVELS_GPU_S[job.level] - job.attained_gpu_s
        return job.working_s + missing_gpu_s / job.spec.gpus

    def advance(self, job: Job) -> None:
        job.level += 1

    def promoted_at(self, job: Job) -> float:
        if job.level == 0:
            return NEVER
        return job.since_s + PATIENCE * job.worked_s

    def promote(self, job: Job) -> None:
        job.attained_gpu_s = 0.0
