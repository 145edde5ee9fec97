"""The orchestrator: for a job that does not fit, whose GPUs it gets, or that it shall wait."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from lazerd.model.cluster import Placement
from lazerd.model.job import Job
from lazerd.model.weighing import Moment, Weighing
from lazerd.policy.backfill import Reservation
from lazerd.policy.deferral import pays_to_wait, relief_s
from lazerd.policy.floor import Floor
from lazerd.policy.moments import candidates
from lazerd.policy.orders import NEVER
from lazerd.policy.victims import minimal_set
from lazerd.predict.loss import lost_s, next_checkpoint_in_s

TICK_S = 0.001
"""The shortest wait for a checkpoint: what rounding leaves of one is not waited for again."""


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
        self.again_s = NEVER
        """When to look again for the job that was last put off, if nothing else happens."""

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
        self.again_s = NEVER
        if not self._floor.variant.preempts or self._is_too_dear(job):
            return None
        found = minimal_set(self._floor.cluster, job.spec.gpus, self._victims(job))
        if found is None:
            return None
        victims, placement = found
        return Plan(job, victims, placement, self._taken(job, victims))

    def reservation(self, job: Job) -> Reservation | None:
        """The job is the first that has to wait: what is free is not to delay it."""
        cluster = self._floor.cluster
        if not cluster.spare_soon() or not cluster.fits_empty(job.spec.gpus):
            return None
        immune_s = _for_ever if job.is_elder else self._floor.variant.immune_s
        return Reservation(cluster, self._floor.running, job, immune_s)

    def _taken(self, job: Job, victims: list[Job]) -> Weighing | None:
        """The numbers of a preemption that is carried out: now was chosen, whatever was cheaper."""
        weighing = self._weighing(job, victims) if victims else None
        if weighing is None or weighing.chosen.moment is Moment.NOW:
            return weighing
        moments = (weighing.chosen, *weighing.others)
        now = next(moment for moment in moments if moment.moment is Moment.NOW)
        others = tuple(moment for moment in moments if moment is not now)
        return replace(weighing, chosen=now, others=others)

    def weigh(self, job: Job) -> Weighing | None:
        """What would be weighed for a pending job now; None where nobody could be preempted."""
        if not self._floor.variant.preempts:
            return None
        behind = (victim for _, victim in self._behind(job))
        found = minimal_set(self._floor.cluster, job.spec.gpus, behind)
        return self._weighing(job, found[0] if found else [])

    def _behind(self, job: Job) -> Iterator[tuple[float, Job]]:
        for value, victim in self._floor.running.victims(self._now_s):
            if value <= job.key:
                return
            yield value, victim

    def _victims(self, job: Job) -> Iterator[Job]:
        for _, victim in self._behind(job):
            if not self._floor.variant.defers or self._is_worth_it(job, victim):
                yield victim

    def _is_too_dear(self, job: Job) -> bool:
        """Whether no victim at all can be worth it, so that none need be looked at."""
        if not self._floor.variant.defers or job.is_due or self._fits_soon(job):
            return False
        return self.relief_s() <= self._floor.prices.least_price_s(job, self._floor.least_setup_s)

    def _fits_soon(self, job: Job) -> bool:
        return self._floor.cluster.fit_soon(job.spec.gpus) is not None

    def _is_worth_it(self, job: Job, victim: Job) -> bool:
        price_s = self._floor.prices.price_s(job, victim, self._now_s)
        if not job.is_due and self.relief_s() <= price_s:
            return False
        lost = lost_s(victim, self._now_s)
        if lost == 0:
            return True
        safe_in_s = next_checkpoint_in_s(victim, self._now_s)
        if pays_to_wait(safe_in_s, lost):
            self.again_s = min(self.again_s, self._now_s + max(safe_in_s, TICK_S))
            return False
        return True

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

    def _weighing(self, job: Job, victims: list[Job]) -> Weighing | None:
        now_s = self._now_s
        relief = self.relief_s()
        moments = candidates(self._floor, job, victims, relief, now_s)
        now = [moment for moment in moments if moment.moment is Moment.NOW]
        chosen = min(moments, key=lambda moment: moment.delay_s)
        values = [self._floor.order.value(victim, now_s) for victim in victims]
        return Weighing(
            job_id=job.job_id,
            at_s=now_s,
            key=job.key,
            value=min(values, default=self._greatest_value()),
            relief_s=relief,
            price_s=now[0].delay_s if now else NEVER,
            waited_s=now_s - job.since_s,
            limit_s=self._floor.prices.limit_s(job),
            chosen=chosen,
            others=tuple(moment for moment in moments if moment is not chosen),
        )


def _for_ever(job: Job) -> float:
    """Nobody who is not gone by then may stand in an elder's way."""
    return NEVER
