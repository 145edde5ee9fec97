"""What the backend asks of whoever looks at the nodes' GPUs: a port, and one who sees nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import trio

from lazerd.backend.protocol import Problem, Report, Together
from lazerd.backend.slurm.records import SlurmJob


class Eyes(Protocol):
    """Sees on the nodes that jobs work, and that they are off their GPUs."""

    async def watch(
        self,
        reports: trio.MemorySendChannel[Report | Together],
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Report `Working` until cancelled; started when it listens."""
        ...

    def hear(self, report: Report, job: SlurmJob | None) -> None:
        """What was reported of a job, and its record: `Began`, `Ended`, `Gone` count."""
        ...

    def is_clear(self, job_id: str) -> bool:
        """Whether a job that Slurm calls ended was seen off its GPUs, or nobody can look."""
        ...

    def problems(self) -> Sequence[Problem]:
        """What cannot be seen."""
        ...


class NoEyes:
    """Nobody looks: Slurm's word counts, and `lazer working` ends a set-up."""

    async def watch(
        self,
        reports: trio.MemorySendChannel[Report | Together],
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Nothing is seen."""
        task_status.started()

    def hear(self, report: Report, job: SlurmJob | None) -> None:
        """Nobody is watched."""

    def is_clear(self, job_id: str) -> bool:
        """Nobody says otherwise."""
        return True

    def problems(self) -> Sequence[Problem]:
        """None."""
        return ()
