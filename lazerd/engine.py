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

from collections.abc import Callable, Iterable

from lazerd.model.actions import Action, Kill, Preempt, Start, WakeAt
from lazerd.model.cluster import Cluster, Placement
from lazerd.model.events import (
    Cancelled,
    CheckpointSafe,
    Event,
    Evicted,
    Finished,
    Gone,
    Held,
    NodeDrained,
    NodeUp,
    Released,
    SetupEnded,
    Stuck,
    Submitted,
    Wakeup,
)
from lazerd.model.job import Job, Phase
from lazerd.policy.alarms import Alarm
from lazerd.policy.backfill import Reservation
from lazerd.policy.floor import Floor
from lazerd.policy.line import Heads
from lazerd.policy.names import Policy
from lazerd.policy.orchestrator import Orchestrator, Plan
from lazerd.policy.orders import NEVER, work_left_s
from lazerd.predict.loss import worked_s

ALLOWED: dict[type[Event], tuple[Phase, ...]] = {
    SetupEnded: (Phase.SETUP, Phase.LEAVING),
    CheckpointSafe: (Phase.SETUP, Phase.WORKING, Phase.LEAVING),
    Finished: (Phase.SETUP, Phase.WORKING, Phase.LEAVING),
    Gone: (Phase.LEAVING,),
    Stuck: (Phase.LEAVING,),
    Cancelled: tuple(Phase),
    Held: (Phase.PENDING, Phase.PROMISED),
    Released: (Phase.HELD,),
    Evicted: (Phase.SETUP, Phase.WORKING),
}
"""The phases of a job in which each event about it may come."""


class IllegalEvent(Exception):
    """An event about an unknown job, or one that cannot happen now. It has changed nothing."""


class Engine:
    """Decides who starts, who goes, and when to ask again."""

    def __init__(self, cluster: Cluster, policy: Policy) -> None:
        self.policy = policy
        self.floor = Floor(cluster, policy)
        self.now_s = float("-inf")
        self._orchestrator = Orchestrator(self.floor)
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
        self._ring()
        self._complete()
        self._decide()
        self._wake()
        actions, self._actions = tuple(self._actions), []
        return actions

    # 1. take

    def _take(self, event: Event) -> None:
        kind = type(event)
        handler = _HANDLERS[kind]
        allowed = ALLOWED.get(kind)
        if allowed is None:
            handler(self, event)
            return
        job = self.floor.jobs.get(event.job_id)  # type: ignore[union-attr]
        if job is None or job.phase not in allowed:
            raise IllegalEvent(f"{event}: the job is {job.phase.value if job else 'unknown'}")
        handler(self, job, event)

    def _submit(self, event: Submitted) -> None:
        spec = event.job
        if spec.job_id in self.floor.jobs:
            raise IllegalEvent(f"{spec.job_id} was submitted before")
        if spec.gpus < 1:
            raise IllegalEvent(f"{spec.job_id} asks for {spec.gpus} GPUs")
        self.floor.submit(spec, self.now_s)

    def _setup_ended(self, job: Job, event: SetupEnded) -> None:
        if job.phase is Phase.SETUP:
            self.floor.begin(job, self.now_s)

    def _checkpoint_safe(self, job: Job, event: CheckpointSafe) -> None:
        job.safe_s = max(job.safe_s, event.work_s)

    def _finished(self, job: Job, event: Finished) -> None:
        self.floor.finish(job, self.now_s)

    def _gone(self, job: Job, event: Gone) -> None:
        saved_s = job.safe_s if event.saved_s is None else event.saved_s
        self.floor.gone(job, saved_s, self.now_s)

    def _stuck(self, job: Job, event: Stuck) -> None:
        self.floor.stuck(job, self.now_s)

    def _cancelled(self, job: Job, event: Cancelled) -> None:
        job.cancelled = True
        if job.phase in (Phase.SETUP, Phase.WORKING):
            self.floor.let_go(job, self.now_s)
            self._actions.append(Kill(job.job_id))
        elif job.phase in (Phase.PENDING, Phase.PROMISED, Phase.HELD):
            self.floor.unqueue(job, Phase.ENDED)

    def _held(self, job: Job, event: Held) -> None:
        self.floor.unqueue(job, Phase.HELD)

    def _released(self, job: Job, event: Released) -> None:
        self.floor.queue(job, self.now_s)

    def _evicted(self, job: Job, event: Evicted) -> None:
        self.floor.let_go(job, self.now_s)
        self._actions.append(Preempt(job.job_id, None, None))

    def _node_up(self, event: NodeUp) -> None:
        self.floor.cluster.up(event.node, event.gpus)

    def _node_drained(self, event: NodeDrained) -> None:
        self.floor.drain(event.node, self.now_s)

    def _wakeup(self, event: Wakeup) -> None:
        """The cycle that follows is all that was wanted."""

    # 2. ring

    def _ring(self) -> None:
        for alarm, job in self.floor.alarms.ring(self.now_s):
            _ALARMS[alarm](self, job)

    def _overrun(self, job: Job) -> None:
        if job.phase is Phase.SETUP:
            elapsed_s = self.now_s - job.placed_s
            self.floor.expect_end(job, self.now_s + elapsed_s + work_left_s(job))
            return
        age_s = job.done_s + worked_s(job, self.now_s)
        job.estimate_s = self.floor.remaining.total_s(job.spec, age_s)
        self.floor.expect_end(job, self.now_s + job.estimate_s - age_s)

    def _exposed(self, job: Job) -> None:
        self.floor.running.expose(job)

    def _ranked(self, job: Job) -> None:
        self.floor.advance(job)

    def _due(self, job: Job) -> None:
        self.floor.fall_due(job)

    def _promoted(self, job: Job) -> None:
        self.floor.promote(job, self.now_s)

    def _look(self, job: Job) -> None:
        """The cycle that follows is all that was wanted."""

    # 3. complete

    def _complete(self) -> None:
        for job, placement in self.floor.promises.ready():
            self._start(job, placement)

    def _start(self, job: Job, placement: Placement) -> None:
        self.floor.start(job, placement, self.now_s)
        self._orchestrator.look(self.now_s)
        self._actions.append(Start(job.job_id, placement))

    # 4. decide

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
                    self.floor.look_again(job, self._orchestrator.again_s, self.now_s)
                    reserved = reserved or self._orchestrator.reservation(job)
            elif reserved is None or not reserved.is_delayed_by(job, placement, self.now_s):
                self._start(job, placement)
            if job.phase is Phase.PENDING:
                heads.close_size()
            else:
                heads.next_of_size()

    def _carry_out(self, plan: Plan) -> None:
        for victim in plan.victims:
            self.floor.let_go(victim, self.now_s)
            self._actions.append(Preempt(victim.job_id, plan.job.job_id, plan.weighing))
        self.floor.promise(plan.job, plan.placement)
        self._orchestrator.look(self.now_s)

    # 5. wake

    def _wake(self) -> None:
        wake_s: float | None = None
        if self.floor.line.count:
            next_s = self.floor.alarms.next_s()
            wake_s = None if next_s == NEVER else next_s
        if wake_s != self._wake_s or (self._wake_s is not None and self._wake_s <= self.now_s):
            self._wake_s = wake_s
            self._actions.append(WakeAt(wake_s))


_HANDLERS: dict[type, Callable[..., None]] = {
    Submitted: Engine._submit,
    SetupEnded: Engine._setup_ended,
    CheckpointSafe: Engine._checkpoint_safe,
    Finished: Engine._finished,
    Gone: Engine._gone,
    Stuck: Engine._stuck,
    Wakeup: Engine._wakeup,
    Cancelled: Engine._cancelled,
    Held: Engine._held,
    Released: Engine._released,
    Evicted: Engine._evicted,
    NodeUp: Engine._node_up,
    NodeDrained: Engine._node_drained,
}

_ALARMS: dict[Alarm, Callable[[Engine, Job], None]] = {
    Alarm.OVERRUN: Engine._overrun,
    Alarm.EXPOSED: Engine._exposed,
    Alarm.RANK: Engine._ranked,
    Alarm.DUE: Engine._due,
    Alarm.PROMOTED: Engine._promoted,
    Alarm.LOOK: Engine._look,
}
