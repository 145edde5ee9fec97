"""Which GPUs of this machine are held by which job, and which are out of service. Pure.

A GPU is held from the start of a job until the job is gone and the GPU was seen empty. One
that nobody holds and that is not seen empty is out of service: orphaned workers keep their GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable

from lazerd.backend.protocol import Gpu, GpuState


class Allotment:
    """GPUs by number from 0."""

    def __init__(self, gpus: Iterable[Gpu]) -> None:
        self.gpus = {gpu.number: gpu for gpu in gpus}
        self.holder: dict[int, str] = {}
        self.stuck: dict[int, str] = {}
        """Held by a job that does not go away: number -> why."""

    @property
    def out(self) -> dict[int, str]:
        """GPUs that nobody holds and nobody gets: number -> why."""
        return {
            gpu.number: gpu.detail or f"{gpu.state.value}{_pids(gpu)}"
            for gpu in self.gpus.values()
            if gpu.number not in self.holder and gpu.state is not GpuState.EMPTY
        }

    @property
    def offered(self) -> int:
        """How many GPUs there are for jobs, those in use counted."""
        return len(self.gpus) - len(self.out) - len(self.stuck)

    def see(self, gpus: Iterable[Gpu]) -> None:
        """What a sensor saw."""
        self.gpus.update((gpu.number, gpu) for gpu in gpus)

    def pick(self, job_id: str, count: int) -> tuple[int, ...] | None:
        """Take the lowest numbers that are free; None, and nothing taken, when too few are."""
        free = [n for n in sorted(self.gpus) if n not in self.holder and n not in self.out]
        if len(free) < count:
            return None
        self.hold(job_id, free[:count])
        return tuple(free[:count])

    def hold(self, job_id: str, numbers: Iterable[int]) -> None:
        """The job has these GPUs."""
        for number in numbers:
            self.holder[number] = job_id

    def release(self, job_id: str) -> None:
        """The job is gone, its GPUs were seen empty, or are seen as they are from now on."""
        for number in self.held_by(job_id):
            del self.holder[number]
            self.stuck.pop(number, None)

    def give_up(self, job_id: str, why: str) -> None:
        """The job does not go away; its GPUs are still its own, and out of service."""
        self.stuck.update((number, why) for number in self.held_by(job_id))

    def held_by(self, job_id: str) -> tuple[int, ...]:
        """The numbers of the GPUs of a job."""
        return tuple(n for n, holder in sorted(self.holder.items()) if holder == job_id)

    def visible(self, numbers: Iterable[int]) -> str:
        """The value of CUDA_VISIBLE_DEVICES for these GPUs."""
        return ",".join(self.gpus[number].index for number in numbers)


def _pids(gpu: Gpu) -> str:
    return f" by pid {', '.join(map(str, sorted(gpu.pids)))}" if gpu.pids else ""
