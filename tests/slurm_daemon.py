"""A stand-in for the daemon in tests of the Slurm backend: it asks, and keeps the reports."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import trio

from lazerd.backend.protocol import (
    Began,
    Ended,
    Known,
    Report,
    Submission,
    Together,
    Withdrawn,
)
from lazerd.backend.slurm.backend import SlurmBackend
from lazerd.backend.slurm.eyes import Eyes
from lazerd.model.cluster import Placement
from tests.slurm_cluster import SlurmCluster

Kind = TypeVar("Kind")
WAIT_S = 20.0


class FakeDaemon:
    """Holds one backend; `reports` is all that it said, in order."""

    def __init__(self, backend: SlurmBackend) -> None:
        self.backend = backend
        self.reports: list[Report] = []
        self._news = trio.Event()

    async def listen(self, channel: trio.MemoryReceiveChannel[Report | Together]) -> None:
        async for report in channel:
            said = report.reports if isinstance(report, Together) else (report,)
            self.reports += said
            for one in said:
                if isinstance(one, Ended | Withdrawn):
                    await self.backend.forget(one.job_id)
            self._news.set()
            self._news = trio.Event()

    def of(self, kind: type[Kind], job_id: str | None = None) -> list[Kind]:
        """Reports of one kind, of one job."""
        return [
            report
            for report in self.reports
            if isinstance(report, kind) and job_id in (None, _job_of(report))
        ]

    async def sees(
        self, kind: type[Kind], job_id: str | None = None, times: int = 1, limit_s: float = WAIT_S
    ) -> Kind:
        """The last report of a kind, when there have been so many."""
        with trio.move_on_after(limit_s):
            while len(self.of(kind, job_id)) < times:
                await self._news.wait()
            return self.of(kind, job_id)[-1]
        raise AssertionError(f"no {kind.__name__} of {job_id} in {limit_s} s; {self.reports}")

    async def start(self, job_id: str, placement: Placement) -> Began:
        """In line, then started there."""
        await self.sees(Submission, job_id)
        times = len(self.of(Began, job_id))
        await self.backend.start(None, job_id, placement)
        return await self.sees(Began, job_id, times + 1)


async def until(condition: Callable[[], object], limit_s: float = WAIT_S) -> None:
    """Wait for something that nobody reports."""
    with trio.move_on_after(limit_s):
        while not await trio.to_thread.run_sync(condition):  # noqa: ASYNC110
            await trio.sleep(0.05)
        return
    raise AssertionError(f"it did not happen within {limit_s} s")


@contextlib.asynccontextmanager
async def daemon_on(
    cluster: SlurmCluster,
    known: Sequence[Known] = (),
    state_dir: Path | None = None,
    steered: Sequence[str] = ("gpu",),
    eyes: Eyes | None = None,
    **options: object,
) -> AsyncIterator[FakeDaemon]:
    """A backend that watches a cluster, as long as the block lasts."""
    settings = {"conf": str(cluster.conf), "poll_s": 0.2, "command_s": 5.0, **options}
    backend = SlurmBackend.configured(steered, settings, state_dir, eyes)
    daemon = FakeDaemon(backend)
    sender, receiver = trio.open_memory_channel[Report | Together](256)
    await backend.adopt(known)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(daemon.listen, receiver)
        await nursery.start(backend.watch, sender)
        yield daemon
        nursery.cancel_scope.cancel()


def _job_of(report: object) -> str | None:
    job_id = getattr(report, "job_id", None)
    spec = getattr(report, "spec", None)
    return job_id or (spec.job_id if spec is not None else None)
