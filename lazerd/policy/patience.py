"""No job is passed over for ever: one that has waited too long goes to the front, and stays.

Orders by size let any number of small jobs pass a large one, and a large gang needs many GPUs at
one time. An elder goes before all others, whatever its class; what comes free is kept for it, and
once it runs nobody preempts it. Patience is generous, because each elder is an exception to an
order that is better for the mean: a week is longer than 99 of 100 jobs of Philly take from
submission to end under SRSF, and ten times its own length is what a long job can bear.
"""

from __future__ import annotations

from lazerd.model.job import Job
from lazerd.policy.orders import work_left_s

WEEK_S = 7 * 86_400.0
LENGTHS = 10.0


def patience_s(job: Job) -> float:
    """How long a job waits, at a stretch, before it is an elder; seconds."""
    return WEEK_S + LENGTHS * (job.setup_s + work_left_s(job))
