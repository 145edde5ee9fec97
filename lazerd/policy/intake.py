"""Events, taken: each is checked against the job's phase, and moves the job on the floor."""

from __future__ import annotations

import math
from collections.abc import Callable

from lazerd.model.actions import Action, Kill, Preempt
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
from lazerd.policy.floor import Floor

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


class Intake:
    """Takes one event after the other; `asked` is what has to be done at once because of them."""

    def __init__(self, floor: Floor) -> None:
        self._floor = floor
        self._now_s = 0.0
        self._asked: list[Action] = []

    def take(self, event: Event, now_s: float) -> list[Action]:
        """Move the job that the event is about. IllegalEvent if it cannot be."""
        kind = type(event)
        job_id = getattr(event, "job_id", None)
        job = None if job_id is None else self._floor.jobs.get(job_id)
        if kind in ALLOWED and (job is None or job.phase not in ALLOWED[kind]):
            raise IllegalEvent(f"{event}: the job is {job.phase.value if job else 'unknown'}")
        self._now_s = now_s
        self._asked = []
        if job is None:
            _OF_THE_CLUSTER[kind](self, event)
        else:
            _OF_A_JOB[kind](self, job, event)
        return self._asked

    def _submit(self, event: Submitted) -> None:
        spec = event.job
        if spec.job_id in self._floor.jobs:
            raise IllegalEvent(f"{spec.job_id} was submitted before")
        if spec.gpus < 1:
            raise IllegalEvent(f"{spec.job_id} asks for {spec.gpus} GPUs")
        for told in (spec.estimate_s, spec.setup_s):
            if told is not None and not 0 <= told < math.inf:
                raise IllegalEvent(f"{spec.job_id}: {told} is not a time")
        self._floor.submit(spec, self._now_s)

    def _setup_ended(self, job: Job, event: SetupEnded) -> None:
        if job.phase is Phase.SETUP:
            self._floor.begin(job, self._now_s)

    def _checkpoint_safe(self, job: Job, event: CheckpointSafe) -> None:
        job.safe_s = max(job.safe_s, event.work_s)

    def _finished(self, job: Job, event: Finished) -> None:
        self._floor.finish(job, self._now_s)

    def _gone(self, job: Job, event: Gone) -> None:
        saved_s = job.safe_s if event.saved_s is None else event.saved_s
        if not 0 <= saved_s < math.inf:
            raise IllegalEvent(f"{job.job_id}: {saved_s} is not a time")
        self._floor.gone(job, saved_s, self._now_s)

    def _stuck(self, job: Job, event: Stuck) -> None:
        self._floor.stuck(job, self._now_s)

    def _cancelled(self, job: Job, event: Cancelled) -> None:
        job.cancelled = True
        if job.phase in (Phase.SETUP, Phase.WORKING):
            self._floor.let_go(job, self._now_s)
            self._asked.append(Kill(job.job_id))
        elif job.phase in (Phase.PENDING, Phase.PROMISED, Phase.HELD):
            self._floor.unqueue(job, Phase.ENDED)

    def _held(self, job: Job, event: Held) -> None:
        self._floor.unqueue(job, Phase.HELD)

    def _released(self, job: Job, event: Released) -> None:
        self._floor.queue(job, self._now_s)

    def _evicted(self, job: Job, event: Evicted) -> None:
        self._floor.let_go(job, self._now_s)
        self._asked.append(Preempt(job.job_id, None, None))

    def _node_up(self, event: NodeUp) -> None:
        self._floor.cluster.up(event.node, event.gpus)

    def _node_drained(self, event: NodeDrained) -> None:
        self._floor.drain(event.node, self._now_s)

    def _wakeup(self, event: Wakeup) -> None:
        """The cycle that follows is all that was wanted."""


_OF_THE_CLUSTER: dict[type, Callable[..., None]] = {
    Submitted: Intake._submit,
    Wakeup: Intake._wakeup,
    NodeUp: Intake._node_up,
    NodeDrained: Intake._node_drained,
}

_OF_A_JOB: dict[type, Callable[..., None]] = {
    SetupEnded: Intake._setup_ended,
    CheckpointSafe: Intake._checkpoint_safe,
    Finished: Intake._finished,
    Gone: Intake._gone,
    Stuck: Intake._stuck,
    Cancelled: Intake._cancelled,
    Held: Intake._held,
    Released: Intake._released,
    Evicted: Intake._evicted,
}
