"""All processes of one start of a job, found, signalled and watched until none is left.

Who belongs to it: what is in its cgroup, what descends from its supervisor (which is the parent of
whatever loses its own), what is in the session of its first process. Only when the supervisor was
killed are processes also known by their environment.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import trio

from lazerd.backend import cgroup
from lazerd.backend.jobdir import Run
from lazerd.backend.processes import (
    Named,
    Stat,
    below,
    everything,
    in_session,
    send,
    with_variables,
)
from lazerd.client import JOB_VARIABLE, SOCKET_VARIABLE

_SOON_S, _LATER_S = 0.02, 0.5
"""Between two looks: at first, and once it takes long."""


class Tree:
    """The processes of a run. `marks`: `NAME=value` that only they were started with.

    `is_over` tells whether the supervisor has seen the last of them go: then nobody need look.
    """

    def __init__(self, run: Run, marks: tuple[str, ...], is_over: Callable[[], bool]) -> None:
        self.run = run
        self._marks = marks
        self._is_over = is_over
        self.known: frozenset[int] = frozenset({run.main.pid})
        """Pids at the last look."""

    def members(self) -> list[Stat]:
        """Who is alive now. Blocks for as long as it takes to read /proc."""
        if self._is_over():
            self.known = frozenset()
            return []
        run, stats = self.run, everything()
        pids = cgroup.members(run.cgroup) | in_session(run.main.pid, stats)
        if run.supervisor.is_alive():
            pids |= below([run.supervisor.pid], stats)
        else:
            pids |= with_variables(self._marks, stats)
        found = [stats[pid] for pid in sorted(pids) if pid in stats]
        self.known = frozenset(stat.pid for stat in found)
        return found

    async def signal(self, *numbers: int) -> None:
        """Signals, in this order, to every process of the job."""

        def send_all() -> None:
            members = self.members()
            for number in numbers:
                send(number, members)

        await trio.to_thread.run_sync(send_all)

    async def kill(self) -> None:
        """SIGKILL to all of it."""
        cgroup.kill(self.run.cgroup)
        await self.signal(9)

    async def until_main_ended(self) -> None:
        """Until the first process of the job is gone."""
        await until_gone(self.run.main)

    async def until_gone(self) -> None:
        """Until no process is left."""
        await until_gone(self.run.supervisor)
        await until(lambda: not self.members())


def marks_of(job_id: str, socket: Path) -> tuple[str, ...]:
    """What only the processes of a job of this daemon find in their environment."""
    return (f"{JOB_VARIABLE}={job_id}", f"{SOCKET_VARIABLE}={socket}")


async def until_gone(process: Named) -> None:
    """Until a process has ended, whoever's child it is."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return
    try:
        if process.is_alive():
            await trio.lowlevel.wait_readable(descriptor)
    finally:
        os.close(descriptor)


async def until(is_so: Callable[[], bool]) -> None:
    """Until something that only looking tells is so; each look in a thread."""
    pause_s = _SOON_S
    while not await trio.to_thread.run_sync(partial(is_so), abandon_on_cancel=True):
        await trio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LATER_S)
