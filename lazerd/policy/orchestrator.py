"""The orchestrator: for a job that does not fit, whose GPUs it gets, or that it shall wait."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lazerd.model.cluster import Placement
from lazerd.model.job import Job
from lazerd.model.weighing import Candidate, Moment, Weighing
from lazerd.policy.backfill import Reservation
from lazerd.policy.deferral import limit_s, price_s, relief_s
from lazerd.policy.floor import Floor
from lazerd.policy.victims import minimal_set
from lazerd.predict.loss import lost_s


@dataclass(frozen=True, slots=True)
class Plan:
    """Who goes so that `job` can start on `placement`; nobody, when others leave anyway."""

    job: Job
    victims: list[Job]
    placement: Placement
    weighing: Weighing | None


class Orchestrator:
    """Looks at the floor at one instant; moves nothing."""

    def __init__(self, floor: Floor) -> None:
        self._floor = floor
        self._now_s = 0.0
        self._relief_s: float | None = None
        self._greatest: float | None = None

    def look(self, now_s: float) -> None:
        """A new instant, or the floor has changed."""
        self._now_s = now_s
        self._relief_s = None
        self._greatest = None

    def is_hopeless(self, job: Job) -> bool:
        """Whether neither this job nor any behind it can start or preempt."""
        if self._floor.cluster.spare_soon():
            return False
        return not self._floor.variant.preempts or self._greatest_value() <= job.key

    def plan(self, job: Job) -> Plan | None:
        """Victims for a job that does not fit, or None: it waits."""
        if not self._floor.variant.preempts:
            return None
        found = minimal_set(self._floor.cluster, job.spec.gpus, self._victims(job))
        if found is None:
            return None
        victims, placement = found
        weighing = self._weighing(job, victims) if victims else None
        return Plan(job, victims, placement, weighing)

    def reservation(self, job: Job) -> Reservation | None:
        """The job is the first that has to wait: what is free is not to delay it."""
        cluster = self._floor.cluster
        if not cluster.spare_soon() or not cluster.fits_empty(job.spec.gpus):
            return None
        immune_s = self._floor.variant.immune_s
        return Reservation(cluster, self._floor.running, job, immune_s)

    def _victims(self, job: Job) -> Iterator[Job]:
        for value, victim in self._floor.running.victims(self._now_s):
            if value <= job.key:
                return
            if not self._floor.variant.defers or self._is_worth_it(job, victim):
                yield victim

    def _is_worth_it(self, job: Job, victim: Job) -> bool:
        return job.is_due or self.relief_s() > price_s(job, victim, self._now_s)

    def relief_s(self) -> float:
        """Time until all that would preempt have their GPUs without it, seconds."""
        if self._relief_s is None:
            spare = self._floor.cluster.spare_soon()
            before = self._floor.line.gpus_before(self._greatest_value())
            self._relief_s = relief_s(self._floor.running, before - spare, self._now_s)
        return self._relief_s

    def _greatest_value(self) -> float:
        if self._greatest is None:
            self._greatest = self._floor.running.greatest_value(self._now_s)
        return self._greatest

    def _weighing(self, job: Job, victims: list[Job]) -> Weighing:
        now_s = self._now_s
        dearest = max(victims, key=lambda victim: price_s(job, victim, now_s))
        lost = sum((v.setup_s + lost_s(v, now_s)) * v.spec.gpus for v in victims)
        names = tuple(victim.job_id for victim in victims)
        price = price_s(job, dearest, now_s)
        relief = self.relief_s() if self._floor.variant.defers else 0.0
        return Weighing(
            job_id=job.job_id,
            at_s=now_s,
            key=job.key,
            value=min(self._floor.order.value(victim, now_s) for victim in victims),
            relief_s=relief,
            price_s=price,
            waited_s=now_s - job.since_s,
            limit_s=limit_s(job),
            chosen=Candidate(Moment.NOW, 0.0, price, lost, names),
            others=(Candidate(Moment.COMPLETION, relief, relief, 0.0),),
        )
