"""A job: what is known of it at submission, and what has become of it since.

A job holds its GPUs from its placement on. First it is in set-up (image, imports, data, NCCL, its
checkpoint), then it works. Preempted, it is pending again at its place in line, never failed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lazerd.model.cluster import Placement


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What whoever submits a job says about it. Times in seconds.

    `estimate_s` is the time of work on all its GPUs without any set-up; None says nothing.
    `setup_s` is the set-up to expect of it; None lets it be learned, by `job_class` and `gpus`.
    `checkpoint_s` is the work between two checkpoints; None: the job saves its work when it is
    asked to go, so nothing is lost; infinity: it never saves.
    `priority` counts only under a policy with priority classes; the greater goes first.
    `grace_s` is the time between the signal and the kill.
    """

    job_id: str
    gpus: int
    submitted_s: float
    user: str = ""
    name: str = ""
    job_class: str = ""
    priority: int = 0
    estimate_s: float | None = None
    setup_s: float | None = None
    checkpoint_s: float | None = None
    grace_s: float = 0.0


class Phase(Enum):
    """Where a job is in its life; `engine.ALLOWED` says what may happen in each."""

    HELD = "held"
    PENDING = "pending"
    PROMISED = "promised"
    """Its victims are on their way out; what they free is kept for it."""
    SETUP = "setup"
    WORKING = "working"
    LEAVING = "leaving"
    """Told to go; it holds its GPUs until its processes are gone and they are empty."""
    ENDED = "ended"


class Job:
    """The engine's record of one job. Only the engine changes it."""

    __slots__ = (
        "attained_gpu_s",
        "cancelled",
        "done_s",
        "end_s",
        "estimate_s",
        "exposed",
        "first_estimate_s",
        "group",
        "is_due",
        "is_elder",
        "is_put_off",
        "key",
        "level",
        "look_s",
        "outlived_setup_s",
        "phase",
        "placed_s",
        "placement",
        "preemptions",
        "rank",
        "reached_s",
        "safe_s",
        "seq",
        "setup_s",
        "since_s",
        "spec",
        "stamp",
        "worked_s",
        "working_s",
    )

    def __init__(self, spec: JobSpec, seq: int) -> None:
        self.spec = spec
        self.seq = seq
        """Its number in the order of submission: what settles ties."""
        self.phase = Phase.PENDING
        self.since_s = spec.submitted_s
        """Since when it waits, in line once more after a preemption."""
        self.estimate_s = 0.0
        """Work it is thought to need in all."""
        self.first_estimate_s = 0.0
        """The same, when it was submitted."""
        self.worked_s = 0.0
        """Work in all placements before this one, lost or not."""
        self.reached_s = 0.0
        """The most work that it ever had behind it at one time: it needs more than that."""
        self.outlived_setup_s = 0.0
        """Set-up that it is known to need at least."""
        self.setup_s = 0.0
        """Set-up to expect of its next start, or of the one that is on."""
        self.done_s = 0.0
        """Work that a preemption can no longer take, as of its placement."""
        self.safe_s = 0.0
        """Work known to be safe, by the last report."""
        self.placed_s = 0.0
        self.working_s = 0.0
        """When its set-up ended, this time."""
        self.end_s = 0.0
        """When it will end, left alone, as far as is known."""
        self.attained_gpu_s = 0.0
        """GPU-seconds of work in the placements before this one, since its last promotion."""
        self.placement: Placement = ()
        self.key = 0.0
        """Its place in line while it waits."""
        self.group = 0
        self.rank = 0.0
        """Its place among the victims of its group while it is exposed."""
        self.level = 0
        """For orders with levels: the one it is in."""
        self.exposed = False
        """Whether it may be preempted."""
        self.look_s = float("inf")
        """When it is looked at again, while it waits for a moment."""
        self.is_due = False
        """Whether it has waited as long as a preemption for it would cost."""
        self.is_put_off = False
        """Whether it was put off since it is in line, which its story tells once."""
        self.is_elder = False
        """Whether it has waited too long, once: it goes first and is not preempted."""
        self.stamp = 0
        """Grows with each change, so that an alarm set before is known to be stale."""
        self.preemptions = 0
        self.cancelled = False

    @property
    def job_id(self) -> str:
        """Its name towards the world."""
        return self.spec.job_id

    @property
    def gpus(self) -> int:
        """How many GPUs its gang needs."""
        return self.spec.gpus
