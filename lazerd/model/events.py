"""What the engine is told. All events of one instant are given together and decided once.

The time of an event is not part of it: `Engine.handle(event, now_s)` takes it from the driver.
"""

from __future__ import annotations

from dataclasses import dataclass

from lazerd.model.job import JobSpec


@dataclass(frozen=True, slots=True)
class Submitted:
    """A job is new."""

    job: JobSpec


@dataclass(frozen=True, slots=True)
class SetupEnded:
    """The job was seen to work, on every GPU of its gang."""

    job_id: str


@dataclass(frozen=True, slots=True)
class CheckpointSafe:
    """The first `work_s` seconds of the job's work, over all its placements, are safe."""

    job_id: str
    work_s: float


@dataclass(frozen=True, slots=True)
class Finished:
    """The job ended by itself; its processes are gone and its GPUs are empty."""

    job_id: str


@dataclass(frozen=True, slots=True)
class Gone:
    """A job that was told to go is gone: no process left, its GPUs seen empty.

    `saved_s` is the work, over all its placements, that its next start will find; None: not
    known, so that what its checkpoints lead to expect is assumed.
    """

    job_id: str
    saved_s: float | None = None


@dataclass(frozen=True, slots=True)
class Stuck:
    """A job that was told to go does not: its GPUs are drained, others must be found."""

    job_id: str


@dataclass(frozen=True, slots=True)
class Wakeup:
    """The time of the last `WakeAt` has come."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Somebody does not want this job any more."""

    job_id: str


@dataclass(frozen=True, slots=True)
class Held:
    """A pending job shall not start."""

    job_id: str


@dataclass(frozen=True, slots=True)
class Released:
    """A held job may start."""

    job_id: str


@dataclass(frozen=True, slots=True)
class Evicted:
    """An operator orders a running job out: the one way to preempt a job in set-up."""

    job_id: str


@dataclass(frozen=True, slots=True)
class NodeUp:
    """A node offers `gpus` GPUs, new or again."""

    node: int
    gpus: int


@dataclass(frozen=True, slots=True)
class NodeDrained:
    """A node takes no new job; those on it go on."""

    node: int


Event = (
    Submitted
    | SetupEnded
    | CheckpointSafe
    | Finished
    | Gone
    | Stuck
    | Wakeup
    | Cancelled
    | Held
    | Released
    | Evicted
    | NodeUp
    | NodeDrained
)
