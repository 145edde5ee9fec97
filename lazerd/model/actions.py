"""What the engine wants done."""

from __future__ import annotations

from dataclasses import dataclass

from lazerd.model.cluster import Placement
from lazerd.model.weighing import Weighing


@dataclass(frozen=True, slots=True)
class Start:
    """Start the job on these GPUs, now; its set-up begins."""

    job_id: str
    placement: Placement


@dataclass(frozen=True, slots=True)
class Preempt:
    """Tell a job to go, and report `Gone`. The GPUs are kept for `beneficiary`.

    `weighing` holds the numbers that the decision rests on; None: an operator's order.
    """

    job_id: str
    beneficiary: str | None
    weighing: Weighing | None


@dataclass(frozen=True, slots=True)
class Kill:
    """End a job that was cancelled, and report `Gone`."""

    job_id: str


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Send `Wakeup` at `at_s`; it replaces the one before. None: none is needed."""

    at_s: float | None


Action = Start | Preempt | Kill | WakeAt
