"""Pure: is a GPU empty, and what did it do for a job?

A GPU is called empty only when it was seen empty: no process holds a context and its memory is
free. A worker whose launcher died still holds it, and so does memory that no visible process owns
(a process in another pid namespace, or one that the driver cannot tear down).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lazerd.backend.protocol import GpuState
from lazerd.sensor.evidence import Use
from lazerd.sensor.reading import GpuReading, Health, Process, Reading

EMPTY_BELOW_BYTES = 64 << 20
"""Chosen between what an idle card has in use (a few MiB, beside what the driver reserves) and
what the smallest context takes (about 100 MiB)."""
EMPTY_BELOW_MIG_BYTES = 512 << 20
"""Each of up to seven MIG instances has some tens of MiB in use while it is idle."""

STATE_OF: dict[Health, GpuState] = {
    Health.LOST: GpuState.LOST,
    Health.SILENT: GpuState.UNKNOWN,
    Health.FAILING: GpuState.UNKNOWN,
}


def state_of(gpu: GpuReading) -> tuple[GpuState, str]:
    """What a GPU is, and why, in words; "" for one that is simply empty."""
    if gpu.health in STATE_OF:
        return STATE_OF[gpu.health], gpu.detail
    if gpu.processes:
        return GpuState.OCCUPIED, "held by " + ", ".join(map(_holder, gpu.processes))
    limit = EMPTY_BELOW_MIG_BYTES if gpu.mig else EMPTY_BELOW_BYTES
    if gpu.used_bytes is not None and gpu.used_bytes > limit:
        used = f"{gpu.used_bytes >> 20} MiB of its memory are in use"
        return GpuState.OCCUPIED, f"{used}, and no process can be seen that holds them"
    if gpu.unlisted and gpu.used_bytes is None:
        return GpuState.UNKNOWN, gpu.unlisted
    return GpuState.EMPTY, gpu.unlisted and f"{gpu.unlisted}; its memory is free"


def is_whole(reading: Reading) -> bool:
    """Whether NVML answered for every GPU that is there: else it is no sample of anybody's work."""
    unseen = (Health.SILENT, Health.FAILING)
    return bool(reading.gpus) and not any(gpu.health in unseen for gpu in reading.gpus)


def jobs_in(reading: Reading) -> tuple[str, ...]:
    """The jobs that hold a context, in order of the GPUs."""
    found = {p.job_id: None for gpu in reading.gpus for p in gpu.processes if p.job_id}
    return tuple(found)


def uses_of(reading: Reading, is_of_job: Callable[[Process], bool]) -> tuple[Use, ...]:
    """What the GPUs did for the job whose processes `is_of_job` knows."""
    return tuple(_uses(reading, is_of_job))


def _uses(reading: Reading, is_of_job: Callable[[Process], bool]) -> Iterator[Use]:
    for gpu in reading.gpus:
        mine = [process for process in gpu.processes if is_of_job(process)]
        if mine:
            yield _use(gpu, mine)


def _use(gpu: GpuReading, mine: list[Process]) -> Use:
    name = gpu.uuid or str(gpu.index)
    known = [process.sm_percent for process in mine if process.sm_percent is not None]
    if len(known) == len(mine):
        return Use(name, max(known))
    if len(mine) == len(gpu.processes) and gpu.busy_percent is not None:
        return Use(name, gpu.busy_percent)  # nobody else is on it, so the whole GPU's is the job's
    return Use(name, None, f"GPU {gpu.index}: {gpu.blind or 'NVML does not say who runs kernels'}")


def _holder(process: Process) -> str:
    if process.job_id is None:
        return f"pid {process.pid}, whose job is not known"
    return f"job {process.job_id}" if process.job_id else f"pid {process.pid}, which is of no job"
