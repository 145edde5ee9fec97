"""The smallest set of victims that frees enough for a whole gang, or nobody.

Victims are let go in a trial of the cluster, the best first, until the gang fits; then each is
taken back, the worst first, that the gang fits without. What is left is minimal: without any one
of them the gang would not fit. When all of them are not enough, nobody goes.
"""

from __future__ import annotations

from collections.abc import Iterable

from lazerd.model.cluster import Cluster, Placement
from lazerd.model.job import Job


def minimal_set(
    cluster: Cluster, gpus: int, candidates: Iterable[Job]
) -> tuple[list[Job], Placement] | None:
    """The victims, best first, and where the gang will be; no victims when it fits already."""
    with cluster.trial():
        chosen, placement = _enough(cluster, gpus, candidates)
        if placement is None:
            return None
        for job in list(reversed(chosen[:-1])):
            cluster.take_back(job.placement)
            without = cluster.fit_soon(gpus)
            if without is None:
                cluster.let_go(job.placement)
            else:
                chosen.remove(job)
                placement = without
        return chosen, placement


def _enough(
    cluster: Cluster, gpus: int, candidates: Iterable[Job]
) -> tuple[list[Job], Placement | None]:
    chosen: list[Job] = []
    placement = cluster.fit_soon(gpus)
    if placement is not None:
        return chosen, placement
    for job in candidates:
        cluster.let_go(job.placement)
        chosen.append(job)
        placement = cluster.fit_soon(gpus)
        if placement is not None:
            break
    return chosen, placement
