"""What Slurm knows, whatever it was printed as: one record for a job, a node, a partition. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

STATE_FLAGS = frozenset(
    {
        "COMPLETING",
        "CONFIGURING",
        "POWER_UP_NODE",
        "REQUEUED",
        "REQUEUE_FED",
        "REQUEUE_HOLD",
        "RESIZING",
        "RESV_DEL_HOLD",
        "REVOKED",
        "SIGNALING",
        "SPECIAL_EXIT",
        "STAGE_OUT",
        "STOPPED",
        "UPDATE_DB",
        "LAUNCH_FAILED",
        "RECONFIG_FAIL",
        "EXPEDITING",
    }
)
"""Words in `job_state` that say more about a state and are none (JOB_STATE_FLAGS in slurm.h)."""

WAITING = frozenset({"PENDING"})
ON_NODES = frozenset({"RUNNING", "SUSPENDED"})
OVER = frozenset(
    {
        "COMPLETED",
        "CANCELLED",
        "FAILED",
        "TIMEOUT",
        "NODE_FAIL",
        "PREEMPTED",
        "BOOT_FAIL",
        "DEADLINE",
        "OUT_OF_MEMORY",
    }
)

CLOSED = {
    "DOWN": "is down",
    "DRAIN": "is drained",
    "DRAINED": "is drained",
    "DRAINING": "is drained",
    "FAIL": "fails",
    "FAILING": "fails",
    "FUTURE": "is not there yet",
    "INVAL": "registered with less than slurm.conf says",
    "INVALID_REG": "registered with less than slurm.conf says",
    "MAINT": "is in a maintenance reservation",
    "NOT_RESPONDING": "does not answer",
    "NO_RESPOND": "does not answer",
    "REBOOT_ISSUED": "is being rebooted",
    "RESERVED": "is in a reservation",
    "UNKNOWN": "is not known yet",
}
"""State of a node, or a flag of it -> why it takes no job. The star of `DOWN*`: NOT_RESPONDING."""


@dataclass(frozen=True, slots=True)
class Held:
    """GPUs that a job holds of one node; `indexes` () where Slurm does not say which."""

    node: str
    gpus: int
    indexes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One record of a job. Times are seconds since 1970, or seconds; None: not set.

    `array_id` 0: in no array; `tasks` stands for all tasks that have no record of their own,
    `task` is that of a record of its own. `gpus_per_node` counts what is asked of each node,
    `gpus` what is asked in all. `nodes` and `held` are of a job that has been placed.
    `exit_status` is a wait status: 256 times the code, plus the signal.
    """

    number: int
    state: str
    flags: frozenset[str] = frozenset()
    reason: str = ""
    array_id: int = 0
    task: int | None = None
    tasks: str = ""
    throttle: int = 0
    het_id: int = 0
    name: str = ""
    user: str = ""
    partitions: tuple[str, ...] = ()
    priority: int | None = None
    gpus: int = 0
    gpus_per_node: int = 0
    node_count: int = 1
    nodes: tuple[str, ...] = ()
    held: tuple[Held, ...] = ()
    required_nodes: str = ""
    excluded_nodes: str = ""
    dependency: str = ""
    reservation: str = ""
    submitted_s: float = 0.0
    begins_s: float | None = None
    started_s: float | None = None
    limit_s: float | None = None
    restarts: int = 0
    can_requeue: bool = True
    is_batch: bool = True
    comment: str = ""
    admin_comment: str = ""
    exit_status: int = 0

    @property
    def is_pending(self) -> bool:
        """It holds nothing: pending, and no node is still cleaning up after it."""
        return self.state in WAITING and not self.is_completing

    @property
    def is_completing(self) -> bool:
        """Its processes are being ended; its nodes take no other job until that is done."""
        return "COMPLETING" in self.flags

    @property
    def is_running(self) -> bool:
        """It has nodes, and was not told to end."""
        return self.state in ON_NODES and not self.is_completing

    @property
    def is_over(self) -> bool:
        """It ended, and its nodes are done with it."""
        return self.state in OVER and not self.is_completing

    @property
    def is_held(self) -> bool:
        """Somebody holds it: Slurm will not start it."""
        return self.priority == 0


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """One node; `why` says why it takes no job, "" when it does."""

    name: str
    gpus: int
    states: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    reason: str = ""

    @property
    def why(self) -> str:
        """Why it takes no job; "" when it does."""
        found = next((CLOSED[word] for word in self.states if word in CLOSED), "")
        return (
            f"{self.name} {found}: {self.reason}"
            if found and self.reason
            else (f"{self.name} {found}" if found else "")
        )


@dataclass(frozen=True, slots=True)
class SlurmPartition:
    """One partition. `preempt_mode` is what Slurm itself would do with its jobs."""

    name: str
    nodes: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    preempt_mode: str = ""
    priority_tier: int = 1


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All jobs and nodes at one look. `broken` are sentences about records that were left out."""

    jobs: tuple[SlurmJob, ...]
    nodes: tuple[SlurmNode, ...] = ()
    broken: tuple[str, ...] = field(default=())
