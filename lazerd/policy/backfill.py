"""A reservation for the first job in line that does not fit, and who may pass it.

Backfilling as in EASY (Lifka, JSSPP 1995): the reserved job's start is when the running jobs, by
their expected ends, have freed enough; another may start before it if it ends by then, or leaves
enough room for it then. Where jobs are preempted it may start too if it can be preempted by then,
so only its set-up, in which it is immune, can be in the way. (Full reservations under eager
preemption made the mean completion time 25 % longer on one trace, and 3 to 4 % on two.)
"""

from __future__ import annotations

from collections.abc import Callable

from lazerd.model.cluster import Cluster, Placement
from lazerd.model.job import Job
from lazerd.policy.orders import NEVER, work_left_s
from lazerd.policy.running import Running


class Reservation:
    """One job's, good for one cycle: the next one makes it anew from what is known then."""

    def __init__(
        self, cluster: Cluster, running: Running, job: Job, immune_s: Callable[[Job], float]
    ) -> None:
        self.job = job
        self.start_s = NEVER
        self._cluster = cluster
        self._immune_s = immune_s
        self._before: list[Placement] = []
        with cluster.trial():
            for end_s, _, ending in running.ends:
                self._before.append(ending.placement)
                cluster.give(ending.placement)
                if cluster.fit_soon(job.spec.gpus) is not None:
                    self.start_s = end_s
                    break

    def is_delayed_by(self, job: Job, placement: Placement, now_s: float) -> bool:
        """Whether the reserved job would start later if `job` started here now."""
        in_the_way_s = min(job.setup_s + work_left_s(job), self._immune_s(job))
        if now_s + in_the_way_s <= self.start_s:
            return False
        with self._cluster.trial():
            self._cluster.take(placement)
            for ended in self._before:
                self._cluster.give(ended)
            return self._cluster.fit_soon(self.job.spec.gpus) is None
