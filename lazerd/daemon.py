"""Composition root: makes the parts, introduces them, opens the nursery. No logic."""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio

from lazerd import __version__, checkpoints, metrics
from lazerd.backend import cgroup, jobdir
from lazerd.backend.local import LocalBackend
from lazerd.backend.protocol import REPORTS_AHEAD, Backend, NoSensor, Report, Sensor, Together
from lazerd.client import SOCKET_NAME
from lazerd.conduct.clock import Clock
from lazerd.conduct.conductor import Conductor
from lazerd.conduct.hearing import Hearing
from lazerd.conduct.tally import Tally
from lazerd.config import Config
from lazerd.control import server
from lazerd.control.answers import Answers
from lazerd.control.asker import asker_of, uid_of
from lazerd.control.verbs import Verbs
from lazerd.errors import ConfigError, LazerError
from lazerd.memory import reboot
from lazerd.memory.restore import restore
from lazerd.memory.snapshot import fingerprint
from lazerd.memory.store import Store
from lazerd.policy.names import Information, Policy, policy_named

log = logging.getLogger(__name__)

JOBS = "jobs"
"""Below `run_dir`: what is known of each running job."""


@dataclass(slots=True)
class Parts:
    """What a test may bring along instead of the real thing."""

    sensor: Sensor | None = None
    backend: Backend | None = None
    clock: Callable[[float], Clock] = Clock
    """Makes a clock that shows no time before this one."""


async def run(config: Config, ready: Callable[[], None], parts: Parts | None = None) -> None:
    """Serve until SIGTERM or SIGINT; jobs that run then go on. `ready`: called when it answers.

    Raises `LazerError` when it cannot be.
    """
    given = parts or Parts()
    _prepare(config.run_dir)
    store = await trio.to_thread.run_sync(Store, config.state_dir)
    try:
        daemon = _compose(config, store, given)
        await daemon.serve(ready)
    finally:
        store.close()


def _prepare(run_dir: Path) -> None:
    try:
        run_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as error:
        raise LazerError(f"{run_dir}: {error.strerror}") from None


def _compose(config: Config, store: Store, given: Parts) -> _Daemon:
    information = config.policy.information
    policy: Policy = policy_named(config.policy.name, Information(information))
    mark = fingerprint(policy, information)
    wall_s = given.clock(0.0).now_s()
    restored = restore(store, policy, mark, wall_s)
    clock = given.clock(restored.at_s)
    backend = given.backend or _backend(config, given)
    conductor = Conductor(restored, store, backend, clock, mark)
    if config.backend == "local" and reboot.has_rebooted(store):
        conductor.mourn(reboot.lost(list(restored.book.records.values())))
    hearing = Hearing(conductor, uid_of)
    answers = Answers(conductor, hearing, backend)
    tally = Tally(answers.reasons)
    answers.tally = tally
    conductor.watchers.append(tally.watch)
    verbs = Verbs(
        config=config,
        conductor=conductor,
        answers=answers,
        store=store,
        version=__version__,
        gpus=partial(_gpus, backend, conductor),
        next_number=1 + max(store.last_number(), _last_directory(config.run_dir)),
        submits_here=config.backend == "local",
    )
    return _Daemon(config, backend, conductor, hearing, answers, tally, verbs)


def _backend(config: Config, given: Parts) -> Backend:
    if config.backend == "slurm":
        return _slurm(config)
    local = config.local
    return LocalBackend(
        config.run_dir / JOBS,
        config.run_dir / SOCKET_NAME,
        given.sensor or _sensor(local.gpus),
        cgroup.find(config.run_dir, wanted=local.cgroups),
        node_name=socket.gethostname(),
        gone_timeout_s=local.gone_timeout,
        sample_s=local.sample,
    )


def _slurm(config: Config) -> Backend:
    from lazerd.backend.slurm.backend import SlurmBackend
    from lazerd.sensor.cluster import sensors_of

    slurm = config.slurm
    try:
        eyes = sensors_of(slurm.options)
        return SlurmBackend.configured(slurm.partitions, slurm.options, config.state_dir, eyes)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _sensor(gpus: int | None) -> Sensor:
    """The GPUs that NVML finds, or as many as were counted. Raises `LazerError` for none."""
    if gpus is not None:
        return NoSensor(gpus)
    from lazerd.sensor.local import LocalSensor
    from lazerd.sensor.watch import make_watch

    sensor = LocalSensor(make_watch("lazer"))
    if not sensor.gpus():
        why = "; ".join(problem.detail for problem in sensor.problems()) or "NVML finds none"
        raise LazerError(f"there are no GPUs here: {why}; --gpus N counts some without looking")
    return sensor


def _gpus(backend: Backend, conductor: Conductor) -> int:
    seen = backend.facts().get("gpus")
    if isinstance(seen, list):
        return len(seen)
    return sum(node.offered for node in conductor.capacity.nodes.values())


def _last_directory(run_dir: Path) -> int:
    """Jobs of a store that was set aside may still run; their numbers are not used again."""
    names = (job_id for job_id, _ in jobdir.below(run_dir / JOBS))
    return max((int(name) for name in names if name.isdecimal()), default=0)


@dataclass(frozen=True)
class _Daemon:
    """The parts that have tasks of their own."""

    config: Config
    backend: Backend
    conductor: Conductor
    hearing: Hearing
    answers: Answers
    tally: Tally
    verbs: Verbs

    async def serve(self, ready: Callable[[], None]) -> None:
        """Every task, until a signal."""
        sender, receiver = trio.open_memory_channel[Report | Together](REPORTS_AHEAD)
        await self.backend.adopt(self.conductor.known())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.hearing.listen, receiver)
            await nursery.start(self.backend.watch, sender)
            nursery.start_soon(self.conductor.run)
            for task in self._optional(sender):
                await nursery.start(task)
            socket_path = self.config.run_dir / SOCKET_NAME
            asker = asker_of(self.config.daemon.operators)
            await nursery.start(server.serve, socket_path, self.verbs.table(), asker)
            with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                log.info("ready: %s, %d jobs", socket_path, len(self.conductor.book.records))
                ready()
                async for number in signals:
                    log.info("%s: jobs that run go on", signal.Signals(number).name)
                    break
            nursery.cancel_scope.cancel()
        await self.conductor.rest()
        if isinstance(self.backend, LocalBackend):
            self.backend.cgroups.close()

    def _optional(
        self, sender: trio.MemorySendChannel[Report | Together]
    ) -> list[Callable[..., Awaitable[object]]]:
        tasks: list[Callable[..., Awaitable[object]]] = [self._look_at_the_line]
        if self.config.checkpoints.cachexfs:
            tasks.append(partial(self._follow_checkpoints, sender))
        if self.config.daemon.metrics_port:
            tasks.append(self._show_metrics)
        return tasks

    async def _look_at_the_line(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        task_status.started()
        while True:
            await trio.sleep(metrics.EVERY_S)
            records = self.conductor.book.records.values()
            self.tally.look(record for record in records if record.state == "pending")

    async def _follow_checkpoints(
        self,
        sender: trio.MemorySendChannel[Report | Together],
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        task_status.started()
        settings = self.config.checkpoints
        prefix = checkpoints.PREFIXES.get(self.backend.name, "")
        await checkpoints.follow(
            checkpoints.Checkpoints(prefix, settings.level),
            checkpoints.CacheXMounts(Path(settings.state_dir)),
            sender,
            settings.poll,
            lambda: any(record.holds_gpus for record in self.conductor.book.records.values()),
        )

    async def _show_metrics(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        shown = metrics.Metrics(self.tally, self.answers.reasons)
        await metrics.serve(
            shown,
            self.config.daemon.metrics_address,
            self.config.daemon.metrics_port,
            lambda: list(self.conductor.book.records.values()),
            task_status=task_status,
        )
