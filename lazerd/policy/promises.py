"""GPUs that a preemption frees are kept for the job that it was for.

A promised job starts when the jobs that it waits for are gone, and only then: GPUs that another
promise's victims left are not lent to it, so no promise can be broken by the order in which
victims go.

A promise waits for all that leave when it is made, so each waits for whatever an earlier one still
waits for. When it is due, what all of them are owed has to be free but for what still leaves then:
that much of a node is never lent to others (`Cluster.owed`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lazerd.model.cluster import Cluster, Placement
from lazerd.model.job import Job


class Promises:
    """Who waits for whose GPUs, in the order in which they were promised."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._kept: dict[int, tuple[Job, Placement, dict[int, Job]]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[tuple[Job, Placement]]:
        for job, placement, _ in self._kept.values():
            yield job, placement

    def make(self, job: Job, placement: Placement, leaving: list[Job]) -> None:
        """Keep `placement` for the job until all of `leaving` are gone, and it starts."""
        self._cluster.keep(placement)
        self._kept[job.seq] = (job, placement, {victim.seq: victim for victim in leaving})
        self._owe()

    def left(self, victim: Job) -> None:
        """A job that was told to go is gone."""
        for _, _, awaited in self._kept.values():
            awaited.pop(victim.seq, None)
        self._owe()

    def on_node(self, node: int) -> list[Job]:
        """Those that GPUs of this node are kept for."""
        return [job for job, where, _ in self._kept.values() if any(n == node for n, _ in where)]

    def waiting_for(self, victim: Job) -> list[Job]:
        """Those that wait for this one to go."""
        return [job for job, _, awaited in self._kept.values() if victim.seq in awaited]

    def withdraw(self, job: Job) -> None:
        """The job starts, or shall not any more: its GPUs are not kept any longer."""
        self._cluster.unkeep(self._kept.pop(job.seq)[1])
        self._owe()

    def ready(self) -> list[tuple[Job, Placement]]:
        """Those whose victims are all gone, and where they start."""
        return [(job, where) for job, where, awaited in self._kept.values() if not awaited]

    def awaited(self, job: Job) -> tuple[str, ...]:
        """The names of those that the job waits for."""
        return tuple(victim.job_id for victim in self._kept[job.seq][2].values())

    def _owe(self) -> None:
        """What must stay free on each node so that every promise can be kept when it is due."""
        promised: dict[int, int] = {}
        owed: dict[int, int] = {}
        for _, placement, awaited in self._kept.values():
            coming = _by_node(victim.placement for victim in awaited.values())
            for node, n in placement:
                promised[node] = promised.get(node, 0) + n
                owed[node] = max(owed.get(node, 0), promised[node] - coming.get(node, 0))
        self._cluster.owe(owed)


def _by_node(placements: Iterable[Placement]) -> dict[int, int]:
    gpus: dict[int, int] = {}
    for placement in placements:
        for node, n in placement:
            gpus[node] = gpus.get(node, 0) + n
    return gpus
