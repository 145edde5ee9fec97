"""A reservation for the first job in line that does not fit, and who may pass it.

Extensive backfilling as in EASY (Lifka, JSSPP 1995): the reserved job's start is when the running
jobs, by their expected ends, have freed enough; another may start before it if it ends by then, or
leaves enough room for it then.
"""

from __future__ import annotations

from lazerd.model.cluster import Cluster, Placement
from lazerd.model.job import Job
from lazerd.policy.orders import NEVER, work_left_s
from lazerd.policy.running import Running


class Reservation:
    """One job's, good for one cycle: the next one makes it anew from what is known then."""

    def __init__(self, cluster: Cluster, running: Running, job: Job) -> None:
        self.job = job
        self.start_s = NEVER
        self._cluster = cluster
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
        if now_s + job.setup_s + work_left_s(job) <= self.start_s:
            return False
        with self._cluster.trial():
            self._cluster.take(placement)
            for ended in self._before:
                self._cluster.give(ended)
            return self._cluster.fit_soon(self.job.spec.gpus) is None
