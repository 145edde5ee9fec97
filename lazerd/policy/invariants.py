"""What must hold after every cycle (DESIGN 2.1), as sentences about what does not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lazerd.model.cluster import Placement
from lazerd.model.job import Job, Phase
from lazerd.policy.floor import Floor

ON_GPUS = (Phase.SETUP, Phase.WORKING, Phase.LEAVING)


def faults(floor: Floor) -> list[str]:
    """What is wrong; empty when nothing is. Looks at every job: for tests and bug reports."""
    return [
        *floor.cluster.faults(),
        *_gangs(floor),
        *_gpus(floor),
        *_indexes(floor),
        *_victims(floor),
    ]


def _gangs(floor: Floor) -> Iterator[str]:
    for job in floor.jobs.values():
        held = sum(gpus for _, gpus in job.placement)
        is_stuck = job.phase is Phase.LEAVING and not job.placement
        if job.phase in ON_GPUS and held != job.spec.gpus and not is_stuck:
            yield f"{job.job_id} needs {job.spec.gpus} GPUs and holds {held}"


def _gpus(floor: Floor) -> Iterator[str]:
    jobs = floor.jobs.values()
    columns = {
        "taken": _by_node(floor, (j.placement for j in jobs if j.phase in ON_GPUS)),
        "leaving": _by_node(floor, (j.placement for j in jobs if j.phase is Phase.LEAVING)),
        "kept": _by_node(floor, (where for _, where in floor.promises)),
    }
    cluster = floor.cluster
    taken = [size - free for size, free in zip(cluster.size, cluster.free, strict=True)]
    counted = {"taken": taken, "leaving": cluster.leaving, "kept": cluster.kept}
    for name, by_node in columns.items():
        if by_node != counted[name]:
            yield f"{name}: the jobs say {by_node}, the cluster {counted[name]}"


def _by_node(floor: Floor, placements: Iterable[Placement]) -> list[int]:
    gpus = [0] * len(floor.cluster.size)
    for placement in placements:
        for node, n in placement:
            gpus[node] += n
    return gpus


def _indexes(floor: Floor) -> Iterator[str]:
    running = {job.seq for _, _, job in floor.running.ends}
    promised = {job.seq for job, _ in floor.promises}
    waiting = {job.seq for job in floor.line}
    due = {job.seq for job in floor.due}
    for job in floor.jobs.values():
        expected = (
            job.phase in (Phase.SETUP, Phase.WORKING),
            job.phase is Phase.PROMISED,
            job.phase is Phase.PENDING,
            job.phase is Phase.LEAVING,
        )
        found = (
            job.seq in running,
            job.seq in promised,
            job.seq in waiting,
            job.seq in floor.leaving,
        )
        if found != expected:
            yield f"{job.job_id} is {job.phase.value}, indexed as {found}"
        if job.is_due != (job.seq in due) or (job.is_due and job.phase is not Phase.PENDING):
            yield f"{job.job_id} is {job.phase.value}, due {job.is_due}"


def _victims(floor: Floor) -> Iterator[str]:
    exposed = [job.seq for job in floor.running.exposed()]
    if sorted(exposed) != sorted(j.seq for j in floor.jobs.values() if j.exposed):
        yield "the victims are not those that are exposed"
    for job in floor.running.exposed():
        if not _may_go(floor, job):
            yield f"{job.job_id} may be preempted in {job.phase.value}"


def _may_go(floor: Floor, job: Job) -> bool:
    if floor.variant.once_it_works:
        return job.phase is Phase.WORKING
    return job.phase in (Phase.SETUP, Phase.WORKING)
