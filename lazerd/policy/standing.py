"""Why a pending job is pending: one reason, the most lasting first."""

from __future__ import annotations

from lazerd.model.job import Job, Phase
from lazerd.model.reasons import Reason
from lazerd.model.weighing import Moment, Weighing
from lazerd.policy.floor import Floor

DEFERRED = {
    Moment.NOW: Reason.DEFERRED_UNTIL_COMPLETION,
    Moment.COMPLETION: Reason.DEFERRED_UNTIL_COMPLETION,
    Moment.CHECKPOINT: Reason.DEFERRED_UNTIL_CHECKPOINT,
    Moment.SETUP_END: Reason.DEFERRED_UNTIL_SETUP_END,
    Moment.BURST_END: Reason.DEFERRED_BURST,
}
"""By the moment that a weighing has chosen."""


def reason_of(floor: Floor, job: Job, weighing: Weighing | None) -> Reason | None:
    """The reason; None for a job that is not pending. `weighing`: of a job with victims."""
    if job.phase is Phase.HELD:
        return Reason.HELD
    if job.phase is Phase.PROMISED:
        return Reason.AWAITING_VICTIMS
    if job.phase is not Phase.PENDING:
        return None
    if not floor.cluster.fits_empty(job.spec.gpus):
        return Reason.TOO_BIG
    if weighing is not None and floor.variant.defers and weighing.value > job.key:
        return DEFERRED[weighing.chosen.moment]
    if _first_that_fits(floor) is not job:
        return Reason.PRIORITY
    return Reason.RESERVED if floor.cluster.spare_soon() else Reason.RESOURCES


def _first_that_fits(floor: Floor) -> Job | None:
    heads = floor.line.heads()
    while (job := heads.first()) is not None:
        if floor.cluster.fits_empty(job.spec.gpus):
            return job
        heads.close_size()
    return None
