"""One start of one job on this machine, from its GPUs to its end: a task of the local backend."""

from __future__ import annotations

import logging
import os
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Protocol

import trio

from lazerd.backend import cgroup
from lazerd.backend.allotment import Allotment
from lazerd.backend.cgroup import Cgroups
from lazerd.backend.departure import Departure, ask_to_go, make_go, within
from lazerd.backend.jobdir import JobDirectory, Run
from lazerd.backend.launching import CannotStart, Place, spawn
from lazerd.backend.protocol import Began, Ended, Gone, Launch, Report, Stuck
from lazerd.backend.tree import Tree, marks_of

log = logging.getLogger(__name__)

LEFTOVERS_S = 5.0
"""What a job's first process leaves behind is asked to go too, and given so long."""
AT_ONCE_S = 0.1
AGAIN_S = 1.0
"""Between two attempts to write a start down on a disk that is full."""


class Machine(Protocol):
    """What a job needs of the machine that it runs on: the local backend, as its jobs see it."""

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


class LocalJob:
    """A job that holds GPUs. `machine` is shared by all of them."""

    def __init__(self, launch: Launch, directory: JobDirectory, machine: Machine) -> None:
        self.launch = launch
        self.directory = directory
        self.working = False
        self.tree: Tree | None = None
        self.trouble = ""
        """Why it has not been started yet, for people."""
        self._machine = machine
        self._told = trio.Event()
        self._departure = Departure(launch.signal_number, launch.grace_s)
        self._child = 0

    @property
    def job_id(self) -> str:
        """Its name."""
        return self.launch.job_id

    def tell_to_go(self, signal_number: int, grace_s: float) -> None:
        """It shall go; said twice, the first holds."""
        if not self._told.is_set():
            self._departure = Departure(signal_number, grace_s)
            self._told.set()

    def is_leaving(self) -> bool:
        """Whether it was told to go."""
        return self._told.is_set()

    async def live(self) -> None:
        """From its start, or from where another daemon left it, to its end."""
        run = self.directory.run(self.launch.attempt)
        if run is None:
            if not await self._begin():
                return
        else:
            self._departure.told_at_s = self.directory.told_to_go_at(self.launch.attempt)
            self.tree = self._tree_of(run)
        assert self.tree is not None
        await self._machine.report(Began(self.job_id, self._where()))
        await self._until_it_ends_or_is_told()
        if self._ended_by_itself():
            await self._end()
        else:
            await self._go()

    # --- the beginning ----------------------------------------------------------------------

    async def _begin(self) -> bool:
        """Wait for its GPUs and start it; False when that is over already, and reported."""
        while not self._told.is_set():
            gpus = self._machine.allotment.held_by(self.job_id) or await self._machine.pick(self)
            if gpus:
                try:
                    return await self._spawn(gpus)
                except CannotStart as error:
                    await self._finish(Ended(self.job_id, error.code, str(error)))
                    return False
                except OSError as error:
                    self.trouble = f"its start cannot be written down: {error.strerror}"
                    log.warning("job %s: %s", self.job_id, self.trouble)
            with trio.move_on_after(AGAIN_S):
                await self._told.wait()
        await self._finish(Gone(self.job_id))
        return False

    async def _spawn(self, gpus: tuple[int, ...]) -> bool:
        machine = self._machine
        place = Place(
            gpus,
            machine.allotment.visible(gpus),
            machine.cgroups.make(self.job_id, self.launch.attempt),
            str(machine.socket),
        )
        with trio.CancelScope(shield=True):  # a start is made whole, also when the daemon ends
            self._child = await trio.to_thread.run_sync(
                partial(spawn, self.directory, self.launch, place)
            )
        run = self.directory.run(self.launch.attempt)
        if run is None:
            raise CannotStart("its run was not written down", 126)
        self.tree = self._tree_of(run)
        self.trouble = ""
        return True

    # --- the end ----------------------------------------------------------------------------

    async def _until_it_ends_or_is_told(self) -> None:
        assert self.tree is not None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cancel_when_told, nursery.cancel_scope)
            await self.tree.until_main_ended()
            nursery.cancel_scope.cancel()

    async def _cancel_when_told(self, scope: trio.CancelScope) -> None:
        await self._told.wait()
        scope.cancel()

    def _ended_by_itself(self) -> bool:
        assert self.tree is not None
        return self._departure.told_at_s is None and not self.tree.run.main.is_alive()

    async def _end(self) -> None:
        """Its first process has ended; the others follow."""
        assert self.tree is not None
        with trio.move_on_after(AT_ONCE_S):  # mostly there are none
            await self.tree.until_gone()
        leftovers = Departure(signal.SIGTERM, LEFTOVERS_S)
        left = await self._leave(leftovers, note=False)
        end = self.directory.end(self.launch.attempt)
        lost = "its exit code is not known: its supervisor was killed"
        ended = Ended(self.job_id, end.code, end.error) if end else Ended(self.job_id, None, lost)
        if left:
            await self._finish(ended)
            return
        await self._give_up(ended)
        await self._vanish(leftovers)
        await self._finish()

    async def _go(self) -> None:
        """It was told to go."""
        if not await self._leave(self._departure, note=True):
            await self._give_up(None)
            await self._vanish(self._departure)
        end = self.directory.end(self.launch.attempt)
        code = end.code if end else None
        await self._finish(Gone(self.job_id, code, self._departure.killed))

    async def _give_up(self, report: Report | None) -> None:
        why = await self._machine.why_stuck(self)
        log.error("job %s does not go away: %s", self.job_id, why)
        await self._machine.give_up(self, report or Stuck(self.job_id, why), why)

    async def _leave(self, departure: Departure, *, note: bool) -> bool:
        """All steps of a departure; False when the last ones take longer than their bound."""
        assert self.tree is not None
        await ask_to_go(self.tree, departure, self._note if note else _nowhere)
        return await within(self._machine.gone_timeout_s, partial(self._vanish, departure))

    async def _vanish(self, departure: Departure) -> None:
        assert self.tree is not None
        await make_go(self.tree, departure)
        await self._machine.until_empty(self)

    def _note(self, at_s: float) -> None:
        with suppress(OSError):  # then a daemon after us signals it once more
            self.directory.tell_to_go(self.launch.attempt, at_s)

    async def _finish(self, *reports: Report) -> None:
        if self.tree is not None:
            cgroup.remove(self.tree.run.cgroup)
        if self._child:
            _reap(self._child)
        await self._machine.released(self, *reports)

    # --- small things -----------------------------------------------------------------------

    def _tree_of(self, run: Run) -> Tree:
        marks = marks_of(self.job_id, self._machine.socket)
        return Tree(run, marks, partial(self.directory.is_over, run.attempt))

    def _where(self) -> str:
        assert self.tree is not None
        gpus = ",".join(map(str, self.tree.run.gpus))
        return f"GPUs {gpus}, pid {self.tree.run.main.pid}"


def _reap(pid: int) -> None:
    """Take note of a child's end; does not wait for it."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _nowhere(at_s: float) -> None:
    """Leftovers of a job that has ended are not worth a note."""
