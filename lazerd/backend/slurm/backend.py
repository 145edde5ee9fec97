"""The Slurm backend: looks at Slurm, tells the daemon, carries out what the daemon wants.

One task, one loop: look, report, order, wait. A look is taken only when the orders of the one
before are through, so what it shows is what they have led to. A wish of the daemon ends the wait.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import trio

from lazerd.backend.protocol import (
    BackendBack,
    BackendLost,
    Ended,
    Known,
    Launch,
    Problem,
    Report,
    Together,
)
from lazerd.backend.slurm.commands import COMMAND_S, Commands
from lazerd.backend.slurm.controls import (
    Controls,
    controls_of,
    facts_of,
    warning_of_launches,
    warnings_of,
)
from lazerd.backend.slurm.errors import (
    AlreadySo,
    NoSuchJob,
    NotPermitted,
    SlurmError,
    Unreachable,
)
from lazerd.backend.slurm.eyes import Eyes, NoEyes
from lazerd.backend.slurm.orders import Order, has_steps
from lazerd.backend.slurm.roster import Roster
from lazerd.backend.slurm.sources import Source, source_for
from lazerd.backend.slurm.steering import Steering, Step
from lazerd.model.cluster import Placement

log = logging.getLogger(__name__)

CONTROLS_EVERY_S = 60.0
"""How often `scontrol show config` and the partitions are read again."""

SLOWEST_S = 2.0
"""The longest wait between two tries to reach slurmctld."""

UNPLACED_S = 10.0
"""A job that Slurm has not started so long after its release is a problem to show."""

REFUSALS_KEPT = 20

Reports = trio.MemorySendChannel[Report | Together]


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[slurm.options]` of the configuration. Times in seconds.

    `conf` is slurm.conf, "" for the system's; `format` is what is read: JSON where Slurm has it,
    or text; `poll_s` passes between two looks. `sensors` is where to listen for lazer-sensor,
    HOST:PORT, "" for not at all; `secret_file` is shared with them.
    """

    conf: str = ""
    sensors: str = ""
    secret_file: str = "/etc/lazer/secret"
    poll_s: float = 1.0
    command_s: float = COMMAND_S
    format: Literal["auto", "json", "text"] = "auto"


class SlurmBackend:
    """Implements `lazerd.backend.protocol.Backend`."""

    name = "slurm"

    def __init__(
        self,
        partitions: Sequence[str],
        options: Options | None = None,
        state_dir: Path | None = None,
        eyes: Eyes | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._options = options or Options()
        self._commands = Commands(self._options.conf, self._options.command_s)
        roster = Roster(None if state_dir is None else state_dir / "slurm-nodes")
        self._steering = Steering(partitions, roster)
        self._eyes: Eyes = eyes or NoEyes()
        self._clock = clock
        self._wake = trio.Event()
        self._source: Source | None = None
        self._controls_read_s = float("-inf")
        self._warnings: list[Problem] = []
        self._broken: tuple[str, ...] = ()
        self._refusals: dict[str, str] = {}
        self._unknown: list[str] = []
        self._lost = ""
        self._looked_s: float | None = None

    @classmethod
    def configured(
        cls,
        partitions: Sequence[str],
        options: Mapping[str, Any],
        state_dir: Path | None,
        eyes: Eyes | None = None,
    ) -> SlurmBackend:
        """From the configuration's `[slurm]`. ValueError, with the key, when it is wrong."""
        try:
            read = msgspec.convert(dict(options), Options)
        except msgspec.ValidationError as error:
            raise ValueError(f"slurm.options: {error}") from None
        return cls(partitions, read, state_dir, eyes)

    # --- the daemon's wishes

    async def adopt(self, jobs: Sequence[Known]) -> None:
        """What the daemon knows."""
        self._steering.adopt(jobs)

    async def start(self, launch: Launch | None, job_id: str, placement: Placement) -> None:
        """Release it for one start on these nodes."""
        if launch is not None or not self._steering.start(job_id, placement, self._clock()):
            self._unknown.append(job_id)
        self._wake.set()

    async def preempt(self, job_id: str, signal_number: int, grace_s: float) -> None:
        """Signal it, and put it back in line."""
        self._steering.leave(job_id, signal_number, grace_s, self._clock())
        self._wake.set()

    async def kill(self, job_id: str) -> None:
        """Cancel it while it runs."""
        self._steering.end(job_id, self._clock())
        self._wake.set()

    async def withdraw(self, job_id: str) -> None:
        """Cancel it in line."""
        self._steering.drop(job_id, self._clock())
        self._wake.set()

    async def forget(self, job_id: str) -> None:
        """Its end is stored."""
        self._steering.forget(job_id)

    # --- the loop

    async def watch(
        self,
        reports: Reports,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Look, report, order, wait; started after the first look, or when that failed."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._eyes.watch, reports)
            await nursery.start(self._loop, reports)
            task_status.started()

    async def _loop(self, reports: Reports, task_status: trio.TaskStatus[None]) -> None:
        wait_s = self._options.poll_s
        is_first = True
        while True:
            self._wake = trio.Event()
            try:
                await self._round(reports)
                wait_s = self._options.poll_s
            except Unreachable as error:
                await self._say_lost(str(error), reports)
                wait_s = min(wait_s * 2, SLOWEST_S)
            except SlurmError as error:
                # An answer that cannot be read is no answer: nothing is known.
                await self._say_lost(str(error), reports)
                wait_s = SLOWEST_S
            if is_first:
                task_status.started()
                is_first = False
            with trio.move_on_after(wait_s):
                await self._wake.wait()

    async def _round(self, reports: Reports) -> None:
        source = await self._ready()
        snapshot = await source.look()
        self._broken = snapshot.broken
        step = self._steering.look(snapshot, self._clock(), self._eyes.is_clear)
        self._looked_s = self._clock()
        await self._report(step, reports)
        await self._carry_out(step.orders)

    async def _ready(self) -> Source:
        """Settings and partitions, read now and then; the way to look, chosen by the release."""
        if self._source is None or self._clock() - self._controls_read_s > CONTROLS_EVERY_S:
            source = await source_for(self._commands, self._options.format)
            partitions = await source.partitions()
            controls = controls_of(source.config)
            self._steering.controls = controls
            self._warnings = warnings_of(controls, partitions, sorted(self._steering.partitions))
            self._source, self._controls_read_s = source, self._clock()
        return self._source

    async def _report(self, step: Step, reports: Reports) -> None:
        made: list[Report] = []
        if self._lost:
            log.warning("slurm answers again")
            self._lost = ""
            made.append(BackendBack())
        unknown, self._unknown = self._unknown, []
        made += [Ended(job_id, None, "Slurm does not know the job") for job_id in unknown]
        made += step.reports
        for report in step.reports:
            entry = self._steering.entries.get(getattr(report, "job_id", ""))
            self._eyes.hear(report, None if entry is None else entry.job)
        if made:
            await reports.send(Together(tuple(made)))

    async def _say_lost(self, why: str, reports: Reports) -> None:
        is_new, self._lost, self._source = not self._lost, why, None
        if is_new:
            log.warning("slurm cannot be reached: %s", why)
            await reports.send(BackendLost(why))

    async def _carry_out(self, orders: Sequence[Order]) -> None:
        """All orders side by side; the first that shows that Slurm is away ends the round."""
        lost: list[Unreachable] = []

        async def one(order: Order) -> None:
            try:
                await self._give(order)
            except Unreachable as error:
                lost.append(error)

        async with trio.open_nursery() as nursery:
            for order in orders:
                nursery.start_soon(one, order)
        if lost:
            raise lost[0]

    async def _give(self, order: Order) -> None:
        """One order. What is refused shows in `problems`, and is ordered again by the next look."""
        log.info("%s %s", order.what, order.job_id)
        try:
            for command in order.commands:
                await self._commands.run(command)
            if order.steps:
                steps = (await self._commands.run(order.steps)).decode(errors="replace")
                await self._commands.run(order.with_steps if has_steps(steps) else order.without)
        except (AlreadySo, NoSuchJob) as error:
            log.info("%s", error)  # it went on meanwhile: the next look shows where to
        except Unreachable:
            self._steering.failed(order)
            raise
        except SlurmError as error:
            self._steering.failed(order)
            self._refuse(order, error)
        else:
            self._refusals.pop(order.job_id, None)

    def _refuse(self, order: Order, error: SlurmError) -> None:
        if order.job_id not in self._refusals:
            log.warning("%s of %s: %s", order.what, order.job_id, error)
        while len(self._refusals) >= REFUSALS_KEPT:
            del self._refusals[next(iter(self._refusals))]
        code = "NotPermitted" if isinstance(error, NotPermitted) else "Refused"
        self._refusals[order.job_id] = f"{code} {order.what} of {order.job_id}: {error}"

    # --- for people

    def processes(self, job_id: str) -> frozenset[int]:
        """None here: they are on the nodes, where lazer-sensor looks."""
        return frozenset()

    def facts(self) -> Mapping[str, Any]:
        """The controller, its settings, and what is left to Slurm."""
        return {
            **facts_of(self.controls),
            "partitions": sorted(self._steering.partitions),
            "reads": self._source.name if self._source is not None else "",
            "reachable": not self._lost,
            "looked_at": self._looked_s,
            "not_steered": dict(self._steering.others),
        }

    def problems(self) -> Sequence[Problem]:
        """What is wrong now."""
        return [
            *self._lost_problem(),
            *self._warnings,
            *(Problem("BrokenAnswer", sentence, "Report it.") for sentence in self._broken[:5]),
            *(_refusal(text) for text in self._refusals.values()),
            *self._unplaced(),
            *self._failing_launches(),
            *self._eyes.problems(),
        ]

    @property
    def controls(self) -> Controls:
        """Slurm's settings."""
        return self._steering.controls

    def _lost_problem(self) -> list[Problem]:
        if not self._lost:
            return []
        action = "Jobs run on; nothing starts or goes until slurmctld answers."
        return [Problem("SlurmUnreachable", self._lost, action)]

    def _unplaced(self) -> list[Problem]:
        late_s = self._clock() - UNPLACED_S
        return [
            Problem(
                "NotStarted",
                f"Slurm has not started {entry.job_id} on"
                f" {','.join(self._steering.nodes_of(entry.placement))}:"
                f" {entry.job.reason or 'no reason given'}.",
                "CPUs, memory, a limit or a reservation to come may be in the way.",
            )
            for entry in self._steering.entries.values()
            if entry.job is not None and not entry.began
            if entry.released_s is not None and entry.released_s < late_s
        ]

    def _failing_launches(self) -> list[Problem]:
        made = (
            warning_of_launches(entry.job, entry.job_id, self.controls)
            for entry in self._steering.entries.values()
            if entry.job is not None
        )
        return [problem for problem in made if problem is not None]


def _refusal(text: str) -> Problem:
    code, _, detail = text.partition(" ")
    action = "Run lazerd as root, as SlurmUser or as a Slurm operator."
    return Problem(code, detail, action if code == "NotPermitted" else "")
