"""One look at a node: all its GPUs, with the jobs of the processes on them, in bounded time."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from lazerd.sensor.bounded import OneAtATime, TooSlow
from lazerd.sensor.errors import NvmlUnavailable
from lazerd.sensor.nvml import Nvml
from lazerd.sensor.ownership import REALMS
from lazerd.sensor.processes import JobFinder
from lazerd.sensor.reading import GpuReading, Health, Process, Reading

NVML_LIMIT_S = 5.0
"""For the calls about one GPU. They take milliseconds; seconds while a driver starts up without
persistence mode."""
PROC_LIMIT_S = 2.0
"""For one process; only one that is stuck in the kernel takes longer than milliseconds."""

HIDDEN = "this sensor runs in a pid namespace of its own: it sees no job of processes outside it"


class Watch:
    """Blocking, bounded, and safe to be called from several threads. `job_of` maps a pid to its
    job, to "" when it has none, to None when that is not known."""

    def __init__(
        self,
        nvml: Nvml,
        job_of: Callable[[int], str | None],
        *,
        hides_pids: bool = False,
        nvml_limit_s: float = NVML_LIMIT_S,
        proc_limit_s: float = PROC_LIMIT_S,
    ) -> None:
        self._nvml = nvml
        self._job_of = job_of
        self._library = OneAtATime("nvml", nvml_limit_s)
        self._proc = OneAtATime("proc", proc_limit_s)
        self._hides_pids = hides_pids
        self._last: tuple[GpuReading, ...] = ()

    def read(self, *, with_work: bool = True) -> Reading:
        """All GPUs. One that was there before does not vanish: it is lost, or silent.

        `with_work`: also what the processes did since the last reading with it.
        """
        try:
            count = self._library.call("counting the GPUs", self._nvml.count)
            indices = range(max(count, len(self._last)))
            gpus = tuple(self._gpu(index, with_work) for index in indices)
        except NvmlUnavailable as error:
            return Reading(self._all(Health.FAILING, str(error)), str(error))
        except TooSlow as error:
            return Reading(self._all(Health.SILENT, str(error)), f"NVML: {error}")
        self._last = gpus
        return Reading(gpus, HIDDEN if self._hides_pids else "")

    def read_gpu(self, index: int) -> GpuReading:
        """One GPU, as `read` without the work has it."""
        try:
            return self._gpu(index, with_work=False)
        except NvmlUnavailable as error:
            return self._unseen(index, Health.FAILING, str(error))

    def _gpu(self, index: int, with_work: bool) -> GpuReading:
        what = f"asking NVML about GPU {index}"
        try:
            gpu = self._library.call(what, lambda: self._nvml.read(index, with_work=with_work))
        except TooSlow as error:
            return self._unseen(index, Health.SILENT, str(error))
        return replace(gpu, processes=tuple(map(self._with_job, gpu.processes)))

    def _with_job(self, process: Process) -> Process:
        what = f"reading /proc/{process.pid}"
        try:
            job_id = self._proc.call(what, lambda: self._job_of(process.pid))
        except TooSlow:
            job_id = None  # it holds the GPU all the same
        return replace(process, job_id=job_id)

    def _unseen(self, index: int, health: Health, detail: str) -> GpuReading:
        known = self._last[index] if index < len(self._last) else GpuReading(index)
        return GpuReading(index, known.uuid, known.name, health, detail)

    def _all(self, health: Health, detail: str) -> tuple[GpuReading, ...]:
        return tuple(self._unseen(gpu.index, health, detail) for gpu in self._last)


def make_watch(realm: str) -> Watch:
    """What looks at this node's GPUs, for the jobs of a realm: "lazer" or "slurm"."""
    finder = JobFinder(REALMS[realm])
    return Watch(Nvml(), finder.job_of, hides_pids=not finder.trusts_pids)
