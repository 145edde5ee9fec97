"""The sensor of one machine, as the local backend asks it (`lazerd.backend.protocol.Sensor`)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from lazerd.backend.protocol import Evidence, Gpu, GpuState, Look, Problem, Watched
from lazerd.sensor.evidence import DEFAULT, Ladder, Rule, Sample
from lazerd.sensor.occupancy import is_whole, state_of, uses_of
from lazerd.sensor.reading import GpuReading, Health, Process, Reading
from lazerd.sensor.watch import HIDDEN, Watch

HERE = "here"
"""The one node that a local ladder has."""
UNSEEN = 0
"""Stands for a pid that is not known; no process has it."""


class LocalSensor:
    """Blocking, in bounded time, from any thread. `clock` gives seconds that never go back."""

    def __init__(
        self, watch: Watch, rule: Rule = DEFAULT, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._watch = watch
        self._rule = rule
        self._clock = clock
        self._climbing = threading.Lock()
        self._climbs: dict[str, _Climb] = {}
        self._looks = 0
        self._last = Reading()

    def gpus(self) -> tuple[Gpu, ...]:
        """All GPUs, in order of their numbers."""
        return tuple(map(_gpu, self._read(with_work=False).gpus))

    def occupied_by(self, number: int) -> frozenset[int]:
        """Pids that hold a context on a GPU; `UNSEEN` among them for whoever cannot be seen, and
        for a GPU that does not answer: it is not taken for empty. Nobody is on one that is lost."""
        gpu = self._watch.read_gpu(number)
        state, _ = state_of(gpu)
        if state is GpuState.OCCUPIED or state is GpuState.UNKNOWN:
            return _pids(gpu) or frozenset({UNSEEN})
        return frozenset()

    def look(self, jobs: Sequence[Watched]) -> Look:
        """One sample: the state of all GPUs, and the evidence for each of these jobs."""
        reading = self._read(with_work=True)
        with self._climbing:
            evidence = self._climb(jobs, reading)
        return Look(tuple(map(_gpu, reading.gpus)), evidence)

    def problems(self) -> Sequence[Problem]:
        """What was not seen at the last look, and why."""
        reading = self._last
        code = "JobsHidden" if reading.problem == HIDDEN else "NvmlUnavailable"
        found = [Problem(code, reading.problem)] if reading.problem else []
        return [*found, *(problem for gpu in reading.gpus for problem in _problems(gpu))]

    def _read(self, *, with_work: bool) -> Reading:
        reading = self._watch.read(with_work=with_work)
        if with_work or not self._looks:  # the others do not ask for all that may be missing
            self._last = reading
        return reading

    def _climb(self, jobs: Sequence[Watched], reading: Reading) -> dict[str, Evidence]:
        now_s, self._looks = self._clock(), self._looks + 1
        before, self._climbs = self._climbs, {}
        for job in jobs:
            climb = before.get(job.job_id)
            if climb is None or climb.was_placed_again(job):
                climb = _Climb(Ladder({HERE: len(job.gpus)}, self._rule))
            climb.job = job
            self._climbs[job.job_id] = climb
        if not is_whole(reading):  # what was not seen is not taken for idle
            return {job_id: c.ladder.evidence(now_s) for job_id, c in self._climbs.items()}
        return {job.job_id: self._observe(job, reading, now_s) for job in jobs}

    def _observe(self, job: Watched, reading: Reading, now_s: float) -> Evidence:
        uses = uses_of(_of(job, reading), lambda process: _is_of(process, job))
        return self._climbs[job.job_id].ladder.observe(Sample(HERE, self._looks, uses), now_s)


class _Climb:
    """A ladder, and the job as it was named when it was last on it."""

    def __init__(self, ladder: Ladder) -> None:
        self.ladder = ladder
        self.job: Watched | None = None

    def was_placed_again(self, job: Watched) -> bool:
        """Other GPUs, or not one process left of those before."""
        last = self.job
        if last is None:
            return False
        strangers = bool(last.pids and job.pids) and last.pids.isdisjoint(job.pids)
        return strangers or set(last.gpus) != set(job.gpus)


def _of(job: Watched, reading: Reading) -> Reading:
    """Only its GPUs: what an orphan of an earlier placement does elsewhere is not its work."""
    return replace(reading, gpus=tuple(gpu for gpu in reading.gpus if gpu.index in job.gpus))


def _is_of(process: Process, job: Watched) -> bool:
    return process.pid in job.pids or process.job_id == job.job_id


def _gpu(gpu: GpuReading) -> Gpu:
    state, detail = state_of(gpu)
    return Gpu(gpu.index, gpu.uuid or str(gpu.index), state, _pids(gpu), detail)


def _pids(gpu: GpuReading) -> frozenset[int]:
    return frozenset(process.pid for process in gpu.processes)


PROBLEM_OF: dict[Health, tuple[str, str]] = {
    Health.LOST: ("GpuLost", "look for Xid messages in the kernel's log; reset or replace it"),
    Health.SILENT: ("NvmlSlow", "look for processes stuck in the driver; it is asked again"),
    Health.FAILING: ("NvmlError", "it is asked again"),
}


def _problems(gpu: GpuReading) -> list[Problem]:
    where = f"GPU {gpu.index}"
    if gpu.health in PROBLEM_OF:
        code, action = PROBLEM_OF[gpu.health]
        return [Problem(code, f"{where} {gpu.uuid}: {gpu.detail}", action)]
    found = []
    if gpu.blind:
        say = "jobs on it have to say that they work (lazer working), unless they are alone there"
        found.append(Problem("UtilisationHidden", f"{where}: {gpu.blind}", say))
    if gpu.unlisted:
        say = "run the sensor as root; until then only memory tells whether it is empty"
        found.append(Problem("ProcessesHidden", f"{where}: {gpu.unlisted}", say))
    return found
