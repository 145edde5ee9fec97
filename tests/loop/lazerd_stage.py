"""A local backend with a daemon that only listens: what tests of the backend share."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from lazerd.backend import cgroup
from lazerd.backend.local import LocalBackend
from lazerd.backend.processes import everything, with_variables
from lazerd.backend.protocol import (
    REPORTS_AHEAD,
    Gpu,
    GpuState,
    Launch,
    Look,
    NoSensor,
    Report,
    Sensor,
    Together,
)
from tests.lazerd_at_work import remove_cgroups

PATIENCE_S = 20.0


class Listener:
    """Hears the reports of a backend, in order."""

    def __init__(self) -> None:
        self.heard: list[Report] = []
        self.together: list[tuple[Report, ...]] = []
        self._more = trio.Event()

    async def listen(self, reports: trio.MemoryReceiveChannel[Report | Together]) -> None:
        async for report in reports:
            parts = report.reports if isinstance(report, Together) else (report,)
            self.together.append(parts)
            self.heard.extend(parts)
            self._more.set()
            self._more = trio.Event()

    async def hears(self, is_it: Callable[[Report], bool]) -> Report:
        with trio.fail_after(PATIENCE_S):
            while True:
                for report in self.heard:
                    if is_it(report):
                        return report
                await self._more.wait()

    async def kind(self, kind: type, job_id: str | None = None) -> Report:
        """The first report of a kind, about a job."""
        return await self.hears(
            lambda r: isinstance(r, kind) and job_id in (None, getattr(r, "job_id", None))
        )

    def kinds(self) -> list[str]:
        return [type(report).__name__ for report in self.heard]


class FakeSensor(NoSensor):
    """GPUs whose occupants a test decides."""

    def __init__(self, gpus: int) -> None:
        super().__init__(gpus)
        self.pids: dict[int, set[int]] = {n: set() for n in range(gpus)}
        self.lost: set[int] = set()

    def gpus(self) -> tuple[Gpu, ...]:
        return tuple(self._gpu(n) for n in self.pids)

    def _gpu(self, n: int) -> Gpu:
        if n in self.lost:
            return Gpu(n, f"GPU-{n}", GpuState.LOST, detail="GPU is lost")
        state = GpuState.OCCUPIED if self.pids[n] else GpuState.EMPTY
        return Gpu(n, f"GPU-{n}", state, frozenset(self.pids[n]))

    def occupied_by(self, number: int) -> frozenset[int]:
        return frozenset(self.pids[number])

    def look(self, jobs: object) -> Look:
        return Look(self.gpus())


class Stage:
    """One machine: a directory, a backend, who listens to it."""

    def __init__(self, directory: Path, sensor: Sensor, *, cgroups: bool, bound_s: float) -> None:
        self.directory = directory
        self.socket = directory / "control.sock"
        self.listener = Listener()
        self.backend = LocalBackend(
            directory / "jobs",
            self.socket,
            sensor,
            cgroup.find(directory, wanted=cgroups),
            gone_timeout_s=bound_s,
            sample_s=0.1,
        )

    def launch(self, job_id: str, *command: str, gpus: int = 1, **more: object) -> Launch:
        fields: dict[str, object] = {
            "environment": {"PATH": os.environ["PATH"], "HERE": str(self.directory)},
            "output": "%j.out",
            "uid": os.geteuid(),
            "gid": os.getegid(),
            "grace_s": 5.0,
        }
        fields |= more
        return Launch(job_id, command, str(self.directory), gpus=gpus, **fields)  # type: ignore[arg-type]

    async def start(self, job_id: str, *command: str, gpus: int = 1, **more: object) -> None:
        launch = self.launch(job_id, *command, gpus=gpus, **more)
        await self.backend.start(launch, job_id, ((0, gpus),))

    async def script(self, job_id: str, text: str, gpus: int = 1, **more: object) -> None:
        """A job that is a piece of Python."""
        await self.start(job_id, sys.executable, "-S", "-c", text, gpus=gpus, **more)

    def output(self, job_id: str) -> str:
        return (self.directory / f"{job_id}.out").read_text()

    async def says(self, job_id: str, text: str) -> None:
        """Until a job has printed something."""
        path = self.directory / f"{job_id}.out"
        with trio.fail_after(PATIENCE_S):
            while not path.exists() or text not in path.read_text():  # noqa: ASYNC110
                await trio.sleep(0.01)

    def left(self) -> set[int]:
        """Processes that this stage's jobs have left."""
        return with_variables([f"HERE={self.directory}"], everything())

    def clear(self) -> None:
        """End what is left, whatever a test has come to."""
        for pid in self.left():
            os.kill(pid, signal.SIGKILL)
        remove_cgroups(self.backend.cgroups)


@asynccontextmanager
async def stage(
    directory: Path,
    sensor: Sensor | None = None,
    *,
    gpus: int = 4,
    cgroups: bool = True,
    bound_s: float = 5.0,
    adopt: tuple[object, ...] = (),
) -> AsyncIterator[Stage]:
    """A backend that runs; its jobs are gone afterwards."""
    made = Stage(directory, sensor or NoSensor(gpus), cgroups=cgroups, bound_s=bound_s)
    sender, receiver = trio.open_memory_channel[Report | Together](REPORTS_AHEAD)
    try:
        await made.backend.adopt(adopt)  # type: ignore[arg-type]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(made.listener.listen, receiver)
            await nursery.start(made.backend.watch, sender)
            yield made
            nursery.cancel_scope.cancel()
    finally:
        if not adopt_later(made):
            made.clear()


def adopt_later(made: Stage) -> bool:
    """Whether a test has asked to leave the jobs to another stage."""
    return bool(getattr(made, "keep", False))
