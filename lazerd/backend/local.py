"""The local backend: the GPUs of this machine, jobs as child processes that outlive the daemon."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import trio

from lazerd.backend import jobdir
from lazerd.backend.allotment import Allotment
from lazerd.backend.cgroup import Cgroups
from lazerd.backend.jobdir import JobDirectory
from lazerd.backend.local_job import LocalJob
from lazerd.backend.protocol import (
    GpuState,
    Known,
    Launch,
    Look,
    NodeUp,
    Problem,
    Report,
    Rung,
    Sensor,
    Stuck,
    Together,
    Watched,
    Working,
)
from lazerd.backend.tree import Tree, marks_of, until
from lazerd.model.cluster import Placement

log = logging.getLogger(__name__)
T = TypeVar("T")

NODE = 0
"""The only one."""
PATIENCE_S = 10.0
"""A look at the GPUs takes milliseconds; NVML may hang while a GPU is being reset."""


class LocalBackend:
    """Jobs below `directory`; GPUs as the sensor sees them."""

    name = "local"

    def __init__(
        self,
        directory: Path,
        socket: Path,
        sensor: Sensor,
        cgroups: Cgroups,
        *,
        node_name: str = "",
        gone_timeout_s: float = 60.0,
        sample_s: float = 1.0,
    ) -> None:
        self.socket = socket
        self.cgroups = cgroups
        self.gone_timeout_s = gone_timeout_s
        self.allotment = Allotment(sensor.gpus())
        self._directory = directory
        self._sensor = sensor
        self._node_name = node_name
        self._sample_s = sample_s
        self._jobs: dict[str, LocalJob] = {}
        self._early: list[LocalJob] = []
        self._strays: dict[str, Tree] = {}
        """Jobs that run here and that the daemon does not know: they keep their GPUs."""
        self._nursery: trio.Nursery | None = None
        self._reports: trio.MemorySendChannel[Report | Together] | None = None
        self._offered = 0
        self._blind = ""

    # --- what the daemon asks ------------------------------------------------------------------

    async def adopt(self, jobs: Sequence[Known]) -> None:
        """Take over what another daemon has started; what nobody knows any more is forgotten."""
        wanted = {job.job_id: job for job in jobs if job.placement and job.launch is not None}
        for job_id, directory in jobdir.below(self._directory):
            if job_id not in wanted:
                self._find_stray(job_id, directory)
        for known in wanted.values():
            assert known.launch is not None
            launch = replace(known.launch, attempt=known.attempt)
            job = self._new(launch)
            job.working = known.working
            self.allotment.hold(job.job_id, job.directory.gpus(launch.attempt))
            if known.leaving:
                job.tell_to_go(known.signal_number, known.grace_s)
        self.cgroups.sweep()

    async def watch(
        self,
        reports: trio.MemorySendChannel[Report | Together],
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Report until cancelled."""
        self._reports = reports
        async with trio.open_nursery() as nursery:
            await self._see()
            self._offered = self.allotment.offered
            await self.report(NodeUp(NODE, self._offered, self._node_name))
            self._nursery = nursery
            for job in self._early:
                nursery.start_soon(job.live)
            self._early.clear()
            for job_id, tree in self._strays.items():
                nursery.start_soon(self._wait_for_stray, job_id, tree)
            nursery.start_soon(self._sample)
            task_status.started()

    async def start(self, launch: Launch | None, job_id: str, placement: Placement) -> None:
        """Start a job on as many GPUs as its placement says."""
        assert launch is not None, "jobs of this backend are submitted to the daemon"
        gpus = sum(count for _, count in placement)
        self._new(replace(launch, gpus=gpus))

    async def preempt(self, job_id: str, signal_number: int, grace_s: float) -> None:
        """Tell a job to go."""
        if job_id in self._jobs:
            self._jobs[job_id].tell_to_go(signal_number, grace_s)

    async def kill(self, job_id: str) -> None:
        """Tell a job to go that will not come back."""
        if job_id in self._jobs:
            launch = self._jobs[job_id].launch
            self._jobs[job_id].tell_to_go(launch.signal_number, launch.grace_s)

    async def withdraw(self, job_id: str) -> None:
        """Nothing is known here of jobs in line."""

    async def forget(self, job_id: str) -> None:
        """The job's end is stored."""
        if job_id not in self._jobs:
            directory = JobDirectory(self._directory / job_id)
            await trio.to_thread.run_sync(directory.remove)

    def processes(self, job_id: str) -> frozenset[int]:
        """Pids at the last look."""
        job = self._jobs.get(job_id)
        return job.tree.known if job is not None and job.tree is not None else frozenset()

    def facts(self) -> Mapping[str, Any]:
        """The GPUs, who has them, and how jobs are kept together."""
        allotment = self.allotment
        out = allotment.out | allotment.stuck
        return {
            "node": self._node_name,
            "cgroups": str(self.cgroups.root or f"none: {self.cgroups.why_not}"),
            "gpus": [
                {
                    "number": gpu.number,
                    "index": gpu.index,
                    "state": gpu.state.value,
                    "job": allotment.holder.get(gpu.number),
                    "out_of_service": out.get(gpu.number, ""),
                }
                for gpu in allotment.gpus.values()
            ],
        }

    def problems(self) -> Sequence[Problem]:
        """GPUs that are out of service, jobs that cannot be started, and what the sensor lacks."""
        found = [*self._sensor.problems()]
        found += [_out_of_service(n, why) for n, why in self.allotment.out.items()]
        found += [_stuck(n, why) for n, why in self.allotment.stuck.items()]
        found += [
            Problem("StartDelayed", f"job {job.job_id}: {job.trouble}")
            for job in self._jobs.values()
            if job.trouble
        ]
        if self._blind:
            found.append(Problem("SensorSilent", self._blind, "see whether nvidia-smi answers"))
        return found

    # --- what its jobs ask ---------------------------------------------------------------------

    async def report(self, report: Report | Together) -> None:
        """Say something to the daemon; waits while it is far behind."""
        assert self._reports is not None
        await self._reports.send(report)

    async def pick(self, job: LocalJob) -> tuple[int, ...] | None:
        """GPUs for a job, seen empty just now; None when too few are."""
        await self._see()
        gpus = self.allotment.pick(job.job_id, job.launch.gpus)
        job.trouble = "" if gpus else "too few of its GPUs are seen empty"
        return gpus

    async def until_empty(self, job: LocalJob) -> None:
        """Until nobody is seen on a job's GPUs, or they have fallen off the bus."""
        numbers = self.allotment.held_by(job.job_id)
        await until(lambda: not any(self._is_occupied(number) for number in numbers))

    async def why_stuck(self, job: LocalJob) -> str:
        """What is left of a job, in words."""
        assert job.tree is not None
        left = await trio.to_thread.run_sync(job.tree.members)
        if left:
            states = ", ".join(f"pid {stat.pid} in state {stat.state}" for stat in left[:5])
            return f"{states} after SIGKILL"
        numbers = self.allotment.held_by(job.job_id)
        held = await trio.to_thread.run_sync(
            lambda: {n: sorted(self._sensor.occupied_by(n)) for n in numbers}
        )
        return "; ".join(f"GPU {n} is held by pid {pids}" for n, pids in held.items() if pids)

    async def give_up(self, job: LocalJob, report: Report, why: str) -> None:
        """A job does not go away: it keeps its GPUs, and they are out of service.

        The engine takes them off by itself when it hears `Stuck`.
        """
        self.allotment.give_up(job.job_id, why)
        if isinstance(report, Stuck):
            self._offered = self.allotment.offered
        await self._report_offer(report)

    async def released(self, job: LocalJob, *reports: Report) -> None:
        """Its GPUs are nobody's; what of them cannot be given out again is said in one breath."""
        await self._see()
        del self._jobs[job.job_id]
        self.allotment.release(job.job_id)
        await self._report_offer(*reports)

    # --- small steps ---------------------------------------------------------------------------

    def _new(self, launch: Launch) -> LocalJob:
        directory = JobDirectory(self._directory / launch.job_id)
        job = self._jobs[launch.job_id] = LocalJob(launch, directory, self)
        if self._nursery is None:
            self._early.append(job)
        else:
            self._nursery.start_soon(job.live)
        return job

    def _find_stray(self, job_id: str, directory: JobDirectory) -> None:
        run = directory.last_run()
        if run is None or not run.supervisor.is_alive():
            directory.remove()
            return
        over = partial(directory.is_over, run.attempt)
        self._strays[job_id] = Tree(run, marks_of(job_id, self.socket), over)
        self.allotment.hold(job_id, run.gpus)
        self.allotment.give_up(job_id, f"job {job_id} of a store that is not there any more")

    async def _wait_for_stray(self, job_id: str, tree: Tree) -> None:
        await tree.until_gone()
        self.allotment.release(job_id)
        JobDirectory(self._directory / job_id).remove()
        await self._report_offer()

    async def _sample(self) -> None:
        while True:
            await trio.sleep(self._sample_s)
            look = await self._look()
            for job_id, evidence in (look.evidence if look else {}).items():
                job = self._jobs.get(job_id)
                if job is not None and not job.working and evidence.rung >= Rung.BUSY:
                    job.working = True
                    await self.report(Working(job_id, evidence))
            await self._report_offer()

    async def _look(self) -> Look | None:
        """One sample of all GPUs and of the jobs that do not work yet."""
        jobs = [
            (job.job_id, job.tree)
            for job in self._jobs.values()
            if job.tree is not None and not job.working and not job.is_leaving()
        ]
        return await self._patiently(partial(self._look_at, jobs))

    def _look_at(self, jobs: list[tuple[str, Tree]]) -> Look:
        watched = []
        for job_id, tree in jobs:
            pids = frozenset(stat.pid for stat in tree.members())
            watched.append(Watched(job_id, pids, tree.run.gpus, tree.run.cgroup))
        look = self._sensor.look(watched)
        self.allotment.see(look.gpus)
        return look

    async def _see(self) -> None:
        """The GPUs alone."""
        gpus = await self._patiently(self._sensor.gpus)
        self.allotment.see(gpus or ())

    async def _patiently(self, call: Callable[[], T]) -> T | None:
        """What a call to the sensor answers; None when that takes too long or fails."""
        try:
            with trio.move_on_after(PATIENCE_S):
                answer = await trio.to_thread.run_sync(call, abandon_on_cancel=True)
                self._blind = ""
                return answer
            self._blind = f"the GPUs have not answered for {PATIENCE_S:.0f} s"
        except Exception as error:  # of a library, and nothing that the jobs have done
            self._blind = str(error)
        return None

    async def _report_offer(self, *reports: Report) -> None:
        """These reports, and how many GPUs are offered from now on if that has changed."""
        offered = self.allotment.offered
        changed = (NodeUp(NODE, offered, self._node_name),) if offered != self._offered else ()
        self._offered = offered
        if reports or changed:
            await self.report(Together((*reports, *changed)))

    def _is_occupied(self, number: int) -> bool:
        """Whether somebody is on a GPU; one that cannot be asked is not taken for empty."""
        if self.allotment.gpus[number].state is GpuState.LOST:
            return False
        try:
            return bool(self._sensor.occupied_by(number))
        except Exception as error:
            self._blind = str(error)
            return True


def _out_of_service(number: int, why: str) -> Problem:
    action = "end the process that holds it, or reset the GPU"
    return Problem("GpuOutOfService", f"GPU {number}: {why}", action)


def _stuck(number: int, why: str) -> Problem:
    action = "it comes back when that process is gone; if it never is, restart the machine"
    return Problem("GpuStuck", f"GPU {number}: {why}", action)
