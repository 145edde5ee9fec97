"""A lazerd in this process, with a sensor or a backend of the test's own."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio

from lazerd import config as configuration
from lazerd.backend.protocol import (
    Began,
    Ended,
    Gone,
    Known,
    Launch,
    NodeUp,
    Problem,
    Report,
    Together,
)
from lazerd.client import SOCKET_NAME, Client
from lazerd.daemon import Parts, run
from lazerd.model.cluster import Placement
from tests.lazerd_at_work import Lazerd

PATIENCE_S = 20.0


class FakeBackend:
    """Jobs that exist on paper; a test says what becomes of them."""

    name = "fake"

    def __init__(self, gpus: int = 4) -> None:
        self.gpus = gpus
        self.asked: list[tuple[str, str]] = []
        self.adopted: list[Known] = []
        self.attempts: dict[str, int] = {}
        self._reports: trio.MemorySendChannel[Report | Together] | None = None

    async def adopt(self, jobs: Sequence[Known]) -> None:
        self.adopted = list(jobs)

    async def watch(
        self,
        reports: trio.MemorySendChannel[Report | Together],
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        self._reports = reports
        await self.say(NodeUp(0, self.gpus, "paper"))
        task_status.started()
        await trio.sleep_forever()

    async def say(self, *reports: Report) -> None:
        assert self._reports is not None
        await self._reports.send(Together(reports))

    async def start(self, launch: Launch | None, job_id: str, placement: Placement) -> None:
        self.asked.append(("start", job_id))
        self.attempts[job_id] = launch.attempt if launch else 0
        await self.say(Began(job_id, "paper"))

    async def preempt(self, job_id: str, signal_number: int, grace_s: float) -> None:
        self.asked.append(("preempt", job_id))

    async def kill(self, job_id: str) -> None:
        self.asked.append(("kill", job_id))

    async def withdraw(self, job_id: str) -> None:
        self.asked.append(("withdraw", job_id))

    async def forget(self, job_id: str) -> None:
        self.asked.append(("forget", job_id))

    def processes(self, job_id: str) -> frozenset[int]:
        return frozenset()

    def facts(self) -> Mapping[str, Any]:
        return {"gpus": [{"number": n} for n in range(self.gpus)]}

    def problems(self) -> Sequence[Problem]:
        return ()

    async def ends(self, job_id: str, code: int = 0) -> None:
        await self.say(Ended(job_id, code))

    async def goes(self, job_id: str) -> None:
        await self.say(Gone(job_id))


class Inside:
    """Asks a daemon that runs in this event loop."""

    def __init__(self, config: configuration.Config, directory: Path) -> None:
        self.config, self.directory = config, directory
        self.client = Client(config.run_dir / SOCKET_NAME)

    async def ask(self, verb: str, **arguments: Any) -> Any:
        return await trio.to_thread.run_sync(partial(self.client.ask, verb, **arguments))

    async def submit(self, *command: str, gpus: int = 1, **more: Any) -> str:
        environment = {"PATH": os.environ["PATH"], "HERE": str(self.directory)}
        answer = await self.ask(
            "submit",
            command=command or ("true",),
            directory=str(self.directory),
            environment=environment,
            output="%j.out",
            gpus=gpus,
            **more,
        )
        return str(answer["job"])

    async def script(self, text: str, gpus: int = 1, **more: Any) -> str:
        return await self.submit(sys.executable, "-S", "-c", text, gpus=gpus, **more)

    async def rows(self) -> dict[str, dict[str, Any]]:
        return {row["job"]: row for row in await self.ask("queue")}

    async def until(self, job: str, **fields: Any) -> dict[str, Any]:
        """What `explain` says of a job, once these fields are so."""
        with trio.fail_after(PATIENCE_S):
            while True:
                found: dict[str, Any] = await self.ask("explain", job=job)
                if all(found[key] == value for key, value in fields.items()):
                    return found
                await trio.sleep(0.02)

    async def says(self, job: str, text: str) -> None:
        path = self.directory / f"{job}.out"
        with trio.fail_after(PATIENCE_S):
            while not path.exists() or text not in path.read_text():  # noqa: ASYNC110
                await trio.sleep(0.02)

    def output(self, job: str) -> str:
        return (self.directory / f"{job}.out").read_text()


def settings(directory: Path, text: str = "") -> configuration.Config:
    """A configuration whose state is below a directory."""
    state = f'[daemon]\nstate_dir = "{directory / "state"}"\n'
    return configuration.parse(state + text, "the test")


@asynccontextmanager
async def inside(directory: Path, parts: Parts, text: str = "") -> AsyncIterator[Inside]:
    """A daemon that answers; afterwards it has stopped, and its jobs are gone."""
    config = settings(directory, text)
    ready = trio.Event()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, config, ready.set, parts)
            with trio.fail_after(PATIENCE_S):
                await ready.wait()
            yield Inside(config, directory)
            nursery.cancel_scope.cancel()
    finally:
        left = Lazerd(directory)
        left.state = config.state_dir
        left.clear()
