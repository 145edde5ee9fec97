"""What the daemon asks of a backend and of a sensor, and what they report.

    daemon --- start, preempt, kill, withdraw ---> backend
    daemon <---------- reports (bounded) --------- backend <--- evidence, empty GPUs --- sensor

The daemon's calls are wishes: they return when the wish is noted, do not raise, and are carried out
as soon as that is possible, again after the backend was unreachable. What became of a wish comes
back as a report. A backend that cannot be reached says `BackendLost`, then nothing about any job
until `BackendBack`: unreachable is never failed, and what is not known has not happened.

A report is true when it is sent, once for each thing that happened. After a restart of the daemon
`adopt` says what the daemon knows; the backend then reports what is different.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any, Protocol

import trio

from lazerd.model.cluster import Placement
from lazerd.model.job import JobSpec

REPORTS_AHEAD = 256
"""Reports that may wait for the daemon; a backend that is ahead of it by more waits."""


# --- what is to be run ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Launch:
    """How a job that was submitted here is started.

    `output` and `error` are paths, `error` "" for the same file; `%j` in them is the job's id.
    `signal_number` is what asks it to go. `groups` are supplementary. `attempt` counts its starts
    from 1: what ran before is told from what is to run now.
    """

    job_id: str
    command: tuple[str, ...]
    directory: str
    environment: dict[str, str]
    output: str
    error: str = ""
    gpus: int = 1
    uid: int = 0
    gid: int = 0
    groups: tuple[int, ...] = ()
    signal_number: int = 15
    grace_s: float = 30.0
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Known:
    """A job as the daemon left it: in line when it has no placement, told to go when `leaving`.

    `launch` is None for a job that was submitted elsewhere. A daemon may have died between its
    decision and the call: a job with a placement whose start `attempt` never came is started now,
    and one that is `leaving` is told so unless it was.
    """

    job_id: str
    launch: Launch | None
    placement: Placement = ()
    leaving: bool = False
    working: bool = False
    signal_number: int = 15
    grace_s: float = 30.0
    attempt: int = 1


# --- evidence ---------------------------------------------------------------------------------


class Rung(IntEnum):
    """How sure it is that a job works; the weakest first."""

    NOTHING = 0
    CONTEXT = 1
    """Its processes hold a GPU context: not work yet."""
    FIRST_KERNEL = 2
    """Some GPU of its gang was busy with its processes once."""
    BUSY = 3
    """Every GPU of its gang was, for several samples."""
    SAID = 4
    """The job says so: `lazer working`, or its first checkpoint."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was seen of one job, and in words, for people; `complete` False: a call is missing."""

    rung: Rung
    detail: str = ""
    complete: bool = True


# --- reports ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Submission:
    """A job was submitted elsewhere and is in line. The daemon has not heard of it before."""

    spec: JobSpec
    signal_number: int = 15


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A job in line was cancelled elsewhere."""

    job_id: str


@dataclass(frozen=True, slots=True)
class NotEligible:
    """A job in line may not start, for a reason that lies elsewhere: held there, a dependency."""

    job_id: str
    why: str


@dataclass(frozen=True, slots=True)
class Eligible:
    """It may."""

    job_id: str


@dataclass(frozen=True, slots=True)
class Began:
    """The job's processes run, after `start`. `where` is for people: node, GPUs, pid."""

    job_id: str
    where: str = ""


@dataclass(frozen=True, slots=True)
class Running:
    """A job runs here that the daemon has not started: it came before the daemon.

    `placement` are the GPUs that it holds; `working` that its set-up is over as far as is known.
    """

    spec: JobSpec
    placement: Placement
    working: bool = False
    where: str = ""
    signal_number: int = 15


@dataclass(frozen=True, slots=True)
class Working:
    """The job was seen to work, on every GPU of its gang; its set-up is over."""

    job_id: str
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint of the job that was complete `age_s` seconds ago is safe."""

    job_id: str
    age_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Ended:
    """The job ended by itself: no process left, its GPUs seen empty.

    `exit_code` is 0 to 255, 128 + n for signal n as the shell says it, None when nobody knows it.
    """

    job_id: str
    exit_code: int | None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Gone:
    """A job that was told to go is gone: no process left, its GPUs seen empty.

    `killed`: it used up its grace time and was ended by SIGKILL.
    """

    job_id: str
    exit_code: int | None = None
    killed: bool = False


@dataclass(frozen=True, slots=True)
class Stuck:
    """A job does not go away in bounded time; its GPUs are out of service until `Gone`."""

    job_id: str
    why: str


@dataclass(frozen=True, slots=True)
class NodeUp:
    """A node offers `gpus` GPUs in all, those in use counted: new, again, or more or fewer.

    Fewer only at an instant when the ones that are missing are held by no job.
    """

    node: int
    gpus: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class NodeDrained:
    """A node takes no new job; those on it go on."""

    node: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class BackendLost:
    """The backend cannot be reached; nothing is known until `BackendBack`."""

    why: str


@dataclass(frozen=True, slots=True)
class BackendBack:
    """It can be reached again, and what happened meanwhile has been reported or follows now."""


Report = (
    Submission
    | Withdrawn
    | NotEligible
    | Eligible
    | Began
    | Running
    | Working
    | Saved
    | Ended
    | Gone
    | Stuck
    | NodeUp
    | NodeDrained
    | BackendLost
    | BackendBack
)


@dataclass(frozen=True, slots=True)
class Together:
    """Reports of one instant, which the engine has to hear together."""

    reports: tuple[Report, ...]


# --- the ports --------------------------------------------------------------------------------


class Backend(Protocol):
    """Runs jobs. Its calls may come from several tasks of one event loop."""

    @property
    def name(self) -> str:
        """`local`, `slurm`."""
        ...

    async def adopt(self, jobs: Sequence[Known]) -> None:
        """What the daemon knows, once, before `watch`: all jobs that have not ended."""
        ...

    async def watch(
        self,
        reports: trio.MemorySendChannel[Report | Together],
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Report until cancelled; started when the nodes that there are have been reported.

        Cancelled, it leaves the jobs as they are: they outlive the daemon.
        """
        ...

    async def start(self, launch: Launch | None, job_id: str, placement: Placement) -> None:
        """Start a job on these GPUs. Reports `Began`, or `Ended` when it cannot be started."""
        ...

    async def preempt(self, job_id: str, signal_number: int, grace_s: float) -> None:
        """Signal the whole job, wait, kill all of it, wait until it is gone and its GPUs empty.

        Reports `Gone`; in bounded time `Stuck`, and `Gone` when it is gone after all. A job that
        ended before the signal reports `Ended`.
        """
        ...

    async def kill(self, job_id: str) -> None:
        """A running job was cancelled: the same, after which it is in line nowhere."""
        ...

    async def withdraw(self, job_id: str) -> None:
        """A job in line was cancelled by the daemon's user. Nothing is reported."""
        ...

    async def forget(self, job_id: str) -> None:
        """The end of a job, as reported, is stored: whatever was kept for it can go."""
        ...

    def processes(self, job_id: str) -> frozenset[int]:
        """Pids of the job on this machine, as far as they are known; cheap."""
        ...

    def facts(self) -> Mapping[str, Any]:
        """What `lazer status` shows of it: plain JSON."""
        ...

    def problems(self) -> Sequence[Problem]:
        """What is wrong with it now."""
        ...


@dataclass(frozen=True, slots=True)
class Problem:
    """A CamelCase code, what was seen, and what to do about it."""

    code: str
    detail: str
    action: str = ""


class GpuState(Enum):
    """What a sensor sees of a GPU."""

    EMPTY = "empty"
    OCCUPIED = "occupied"
    LOST = "lost"
    """It fell off the bus, or answers nothing but errors."""
    UNKNOWN = "unknown"
    """The call failed or took too long; it is not taken for empty."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU of this machine. `index` is what CUDA_VISIBLE_DEVICES takes: NVML's, or a UUID."""

    number: int
    index: str
    state: GpuState
    pids: frozenset[int] = frozenset()
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Watched:
    """A job to look at: its processes, its cgroup's path ("" for none), its GPUs by number."""

    job_id: str
    pids: frozenset[int]
    gpus: tuple[int, ...]
    cgroup: str = ""


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the machine."""

    gpus: tuple[Gpu, ...]
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    """By job: how far up the ladder it has come since its placement."""


class Sensor(Protocol):
    """Looks at the GPUs of this machine. Its calls block: they are made in a thread."""

    def gpus(self) -> tuple[Gpu, ...]:
        """All GPUs, in order of their numbers from 0; the same ones each time."""
        ...

    def occupied_by(self, number: int) -> frozenset[int]:
        """Pids that hold a context on a GPU."""
        ...

    def look(self, jobs: Sequence[Watched]) -> Look:
        """One sample: the state of all GPUs, and the evidence for each of these jobs.

        Jobs that are no longer named are forgotten; one that is placed again is named with other
        pids, and starts at the foot of the ladder.
        """
        ...

    def problems(self) -> Sequence[Problem]:
        """What it cannot see, and why."""
        ...


class NoSensor:
    """GPUs that are only counted: always empty; only `lazer working` ends a set-up."""

    def __init__(self, gpus: int) -> None:
        self._gpus = tuple(Gpu(n, str(n), GpuState.EMPTY) for n in range(gpus))

    def gpus(self) -> tuple[Gpu, ...]:
        """As many as were counted."""
        return self._gpus

    def occupied_by(self, number: int) -> frozenset[int]:
        """Nobody is seen."""
        return frozenset()

    def look(self, jobs: Sequence[Watched]) -> Look:
        """Nothing is seen."""
        return Look(self._gpus)

    def problems(self) -> Sequence[Problem]:
        """Nothing is wrong with a sensor that is not there."""
        return ()
