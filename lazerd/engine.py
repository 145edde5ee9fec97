"""The engine: events in, actions out. No clock, no randomness, no I/O, no order of hashing.

One cycle, for all events of one instant:

1. **take** the events: jobs come, begin to work, end, are gone;
2. **ring** the alarms that are due: an estimate is overrun, an exemption ends, a level is reached;
3. **complete**: jobs start on the GPUs that were kept for them;
4. **decide**, in the policy's order: the next in line starts where it fits, or gets victims, or
   is put off;
5. **wake**: say when to ask again.

A cycle leaves nobody waiting for GPUs that it could have, so a deferral is not something kept: it
is what each cycle decides again from what is known then, and it lapses by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from lazerd.model.actions import Action, Preempt, Start, WakeAt
from lazerd.model.cluster import Cluster, Placement
from lazerd.model.events import Event, Submitted
from lazerd.model.job import Job, Phase
from lazerd.model.reasons import Reason
from lazerd.model.weighing import Weighing
from lazerd.policy.backfill import Reservation
from lazerd.policy.chronicle import Chronicle, Line
from lazerd.policy.floor import Floor
from lazerd.policy.intake import ALLOWED, IllegalEvent, Intake
from lazerd.policy.invariants import faults
from lazerd.policy.line import Heads
from lazerd.policy.names import Policy
from lazerd.policy.orchestrator import Orchestrator, Plan
from lazerd.policy.orders import NEVER
from lazerd.policy.standing import reason_of

__all__ = ["ALLOWED", "BrokenInvariant", "Engine", "Explanation", "IllegalEvent"]


class BrokenInvariant(Exception):
    """The engine is at fault: what must hold does not."""


class Explanation(NamedTuple):
    """Where a job stands. `weighing` is of a job that others could be preempted for, or not yet."""

    job_id: str
    phase: Phase
    reason: Reason | None
    weighing: Weighing | None
    preemptions: int
    story: tuple[Line, ...]


class Engine:
    """Decides who starts, who goes, and when to ask again."""

    def __init__(self, cluster: Cluster, policy: Policy) -> None:
        self.policy = policy
        self.floor = Floor(cluster, policy)
        self.now_s = float("-inf")
        self._intake = Intake(self.floor)
        self._orchestrator = Orchestrator(self.floor)
        self._chronicle = Chronicle()
        self._wake_s: float | None = None
        self._actions: list[Action] = []

    def handle(self, event: Event, now_s: float) -> tuple[Action, ...]:
        """One event at `now_s`, decided at once."""
        return self.handle_all((event,), now_s)

    def handle_all(self, events: Iterable[Event], now_s: float) -> tuple[Action, ...]:
        """All events of one instant, decided together.

        IllegalEvent if one of them cannot be; those before it have been taken, and are decided
        with the next call.
        """
        if now_s < self.now_s:
            raise IllegalEvent(f"time goes back from {self.now_s} to {now_s}")
        self.now_s = now_s
        for event in events:
            self._take(event)
        self.floor.ring(now_s)
        self._complete()
        self._decide()
        self._wake()
        actions, self._actions = tuple(self._actions), []
        return actions

    def validate(self) -> None:
        """Raise BrokenInvariant if anything does not hold that must (DESIGN 2.1). Slow."""
        broken = faults(self.floor)
        broken += [
            f"{j.job_id}: no reason" for j in self._pending() if self.reason(j.job_id) is None
        ]
        if broken:
            raise BrokenInvariant("; ".join(broken))

    def state(self) -> tuple[object, ...]:
        """All that was decided, in a form that can be compared: of an engine and its replay."""
        jobs = self.floor.jobs.values()
        cluster = self.floor.cluster
        return (
            self.now_s,
            tuple((j.job_id, j.phase, j.key, j.placement, j.done_s, j.end_s) for j in jobs),
            tuple(zip(cluster.size, cluster.free, cluster.leaving, cluster.kept, strict=True)),
            self._wake_s,
        )

    def reason(self, job_id: str) -> Reason | None:
        """Why a job is pending; None if it is not. KeyError for an unknown job."""
        return self.explain(job_id).reason

    def story(self, job_id: str) -> tuple[Line, ...]:
        """What happened to a job: events, actions, and what was weighed when it was put off."""
        return self._chronicle.story(job_id)

    def explain(self, job_id: str) -> Explanation:
        """Where a job stands, why, and the numbers, as of the last cycle. KeyError: unknown."""
        job = self.floor.jobs[job_id]
        weighing = None
        if job.phase is Phase.PENDING:
            self._orchestrator.look(self.now_s)
            weighing = self._orchestrator.weigh(job)
        reason = reason_of(self.floor, job, weighing)
        return Explanation(job_id, job.phase, reason, weighing, job.preemptions, self.story(job_id))

    def _pending(self) -> Iterator[Job]:
        waiting = (Phase.PENDING, Phase.PROMISED, Phase.HELD)
        return (job for job in self.floor.jobs.values() if job.phase in waiting)

    def _take(self, event: Event) -> None:
        self._actions.extend(self._intake.take(event, self.now_s))
        job_id = (
            event.job.job_id if isinstance(event, Submitted) else getattr(event, "job_id", None)
        )
        if job_id is not None:
            self._tell(job_id, event)
            if self.floor.jobs[job_id].phase is Phase.ENDED:
                self._forget(job_id)

    def _act(self, job_id: str, action: Action) -> None:
        self._actions.append(action)
        self._tell(job_id, action)

    def _tell(self, job_id: str, what: Event | Action | Weighing) -> None:
        self._chronicle.add(job_id, self.now_s, what)

    def _forget(self, job_id: str) -> None:
        forgotten = self._chronicle.ended(job_id)
        if forgotten is not None:
            self.floor.jobs.pop(forgotten, None)

    def _complete(self) -> None:
        for job, placement in self.floor.promises.ready():
            self._start(job, placement)

    def _start(self, job: Job, placement: Placement) -> None:
        self.floor.start(job, placement, self.now_s)
        self._orchestrator.look(self.now_s)
        self._act(job.job_id, Start(job.job_id, placement))

    def _decide(self) -> None:
        floor = self.floor
        if floor.line.count and (floor.variant.preempts or floor.cluster.spare_now()):
            self._orchestrator.look(self.now_s)
            self._walk(floor.line.heads())
            if floor.due.count:
                self._walk(floor.due.heads())

    def _walk(self, heads: Heads) -> None:
        reserved: Reservation | None = None
        while (job := heads.first()) is not None:
            if self._orchestrator.is_hopeless(job):
                return
            placement = self.floor.cluster.fit_now(job.spec.gpus)
            if placement is None:
                plan = self._orchestrator.plan(job)
                if plan is not None:
                    self._carry_out(plan)
                else:
                    self._put_off(job)
                    reserved = reserved or self._orchestrator.reservation(job)
            elif reserved is None or not reserved.is_delayed_by(job, placement, self.now_s):
                self._start(job, placement)
            if job.phase is Phase.PENDING:
                heads.close_size()
            else:
                heads.next_of_size()

    def _put_off(self, job: Job) -> None:
        """The job waits; the first time, what was weighed becomes part of its story."""
        self.floor.look_again(job, self._orchestrator.again_s, self.now_s)
        if self.policy.variant.defers and not job.is_put_off:
            job.is_put_off = True
            weighing = self._orchestrator.weigh(job)
            if weighing is not None:
                self._tell(job.job_id, weighing)

    def _carry_out(self, plan: Plan) -> None:
        for victim in plan.victims:
            self.floor.let_go(victim, self.now_s)
            preempt = Preempt(victim.job_id, plan.job.job_id, plan.weighing)
            self._act(victim.job_id, preempt)
            self._tell(plan.job.job_id, preempt)
        self.floor.promise(plan.job, plan.placement)
        self._orchestrator.look(self.now_s)

    def _wake(self) -> None:
        wake_s: float | None = None
        if self.floor.line.count:
            next_s = self.floor.alarms.next_s()
            wake_s = None if next_s == NEVER else next_s
        if wake_s != self._wake_s or (self._wake_s is not None and self._wake_s <= self.now_s):
            self._wake_s = wake_s
            self._actions.append(WakeAt(wake_s))
