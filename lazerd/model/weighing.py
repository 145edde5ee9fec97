"""The numbers behind a decision: what preempting now costs, and what each later moment does."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Moment(Enum):
    """When a job can get its GPUs."""

    NOW = "now"
    CHECKPOINT = "checkpoint"
    """Just after a victim's next checkpoint is safe."""
    COMPLETION = "completion"
    """When running jobs, left alone, have freed enough."""
    SETUP_END = "setup_end"
    """When a better victim has ended its set-up."""
    BURST_END = "burst_end"
    """When the burst of arrivals is likely over, to decide once for all of it."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One moment: how far off it is, and what it costs.

    `delay_s` is by how much later jobs complete, all in all, in seconds; `lost_gpu_s` is the GPU
    time that is spent twice: the victims' set-ups and the work since their last safe checkpoints.
    """

    moment: Moment
    in_s: float
    delay_s: float
    lost_gpu_s: float
    victims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Weighing:
    """What was weighed for `job_id` at `at_s`, and what was chosen.

    `key` is the waiting job's place in the policy's order and `value` the lowest of its victims'
    (the unit is the order's: GPU-seconds for SRSF); a victim needs a value above the key.
    `relief_s` is the time until running jobs free enough by themselves, `price_s` what the
    dearest victim's completion pays, `waited_s` and `limit_s` how long the job has waited and
    when it need not wait any longer.
    """

    job_id: str
    at_s: float
    key: float
    value: float
    relief_s: float
    price_s: float
    waited_s: float
    limit_s: float
    chosen: Candidate
    others: tuple[Candidate, ...] = ()
