"""What a preemption takes from its victim: the work since the last safe checkpoint."""

from __future__ import annotations

import math

from lazerd.model.job import Job, Phase


def worked_s(job: Job, now_s: float) -> float:
    """Work since its placement, in seconds."""
    return now_s - job.working_s if job.phase is Phase.WORKING else 0.0


def saved_s(job: Job, now_s: float) -> float:
    """Work, over all placements, that is safe: by report, or by the rhythm of its checkpoints."""
    interval_s = job.spec.checkpoint_s
    worked = worked_s(job, now_s)
    if interval_s is None:
        return job.done_s + worked
    rhythm_s = worked // interval_s * interval_s if math.isfinite(interval_s) else 0.0
    return max(job.safe_s, job.done_s + rhythm_s)


def lost_s(job: Job, now_s: float) -> float:
    """Work that goes if the job does, in seconds."""
    if job.spec.checkpoint_s is None:
        return 0.0
    return max(0.0, job.done_s + worked_s(job, now_s) - saved_s(job, now_s))


def next_checkpoint_in_s(job: Job, now_s: float) -> float:
    """Time to the next safe checkpoint, in seconds; 0 when nothing is at risk, maybe infinity."""
    interval_s = job.spec.checkpoint_s
    if interval_s is None:
        return 0.0
    return max(0.0, interval_s - lost_s(job, now_s))
