"""What a local job needs of the machine that it runs on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from lazerd.backend.allotment import Allotment
from lazerd.backend.cgroup import Cgroups
from lazerd.backend.protocol import Report

if TYPE_CHECKING:
    from lazerd.backend.local_job import LocalJob


class Machine(Protocol):
    """The local backend, as its jobs see it."""

    allotment: Allotment
    cgroups: Cgroups
    socket: Path
    gone_timeout_s: float

    async def report(self, report: Report) -> None:
        """Say something to the daemon."""
        ...

    async def pick(self, job: LocalJob) -> tuple[int, ...] | None:
        """GPUs for a job, seen empty just now; None when too few are."""
        ...

    async def until_empty(self, job: LocalJob) -> None:
        """Until nobody is seen on a job's GPUs."""
        ...

    async def why_stuck(self, job: LocalJob) -> str:
        """What is left of a job, in words."""
        ...

    async def give_up(self, job: LocalJob, report: Report, why: str) -> None:
        """A job does not go away: its GPUs are out of service."""
        ...

    async def released(self, job: LocalJob, *reports: Report) -> None:
        """Its GPUs are nobody's; said together with its end."""
        ...
