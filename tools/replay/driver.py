"""Drives an engine with simulated time: the same object and the same calls as the daemon's.

The driver knows the truth (how long jobs take, when their set-ups end, what a preemption destroys);
the engine sees only what a cluster would show it: submissions with an estimate, ends of set-ups,
ends of jobs, and what was saved of a job that has gone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from lazerd.model.actions import Action, Kill, Preempt, Start, WakeAt
from lazerd.model.events import Event, Finished, Gone, SetupEnded, Submitted, Wakeup
from lazerd.model.job import JobSpec
from tools.replay.clock import Clock, What
from tools.replay.errors import ReplayError
from tools.replay.spans import Outcome, Span

NEVER = math.inf
CIRCLES = 100_000  # instants without the end of any job
NOTED_EVERY = 256  # jobs that end between two notes of progress


class Decider(Protocol):
    """What the driver needs of an engine."""

    def handle_all(self, events: Iterable[Event], now_s: float) -> Sequence[Action]:
        """All events of one instant, decided together."""
        ...


class Observer(Protocol):
    """Sees every instant after it was decided."""

    def __call__(self, now_s: int, events: Sequence[Event], actions: Sequence[Action]) -> None:
        """`events` were handed over at `now_s`, and answered with `actions`."""
        ...


class EngineFault(ReplayError):
    """The engine asked for what cannot be done, or left jobs behind."""

    exit_code = 1


@dataclass(frozen=True)
class Task:
    """A job as the driver knows it: what the engine is told, and the truth. Whole seconds."""

    spec: JobSpec
    submit_s: int
    duration_s: int
    setup_s: int


class _Job:
    """Where a job is. `placement` counts its placements: what an entry of the clock refers to."""

    __slots__ = (
        "kept_s", "leaving", "placed_s", "placement", "running", "spec", "task", "told_s",
        "working_s",
    )  # fmt: skip

    def __init__(self, task: Task) -> None:
        self.task = task
        self.spec = task.spec
        self.kept_s = 0
        """Work that the next placement finds."""
        self.placement = 0
        self.running = False
        self.leaving = False
        self.placed_s = 0
        self.working_s: int | None = None
        self.told_s = 0


class Driver:
    """One replay. `checkpoint_s`: work between two checkpoints, None if a preemption loses none.

    `grace_s` is how long a job that was told to go keeps its GPUs. `gpus` is only checked against.
    """

    def __init__(
        self,
        engine: Decider,
        tasks: Sequence[Task],
        gpus: int,
        *,
        checkpoint_s: int | None = None,
        grace_s: int = 0,
        observer: Observer | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self._engine = engine
        self._jobs = [_Job(task) for task in tasks]
        self._number = {task.spec.job_id: number for number, task in enumerate(tasks)}
        self._free = gpus
        self._checkpoint_s, self._grace_s = checkpoint_s, grace_s
        self._observer, self._progress = observer, progress
        self._clock = Clock()
        self._arrived = 0
        self._ended = 0
        self._now_s = 0
        self._ended_at = 0  # the instant, by number, of the last end
        self._wake_s: float = NEVER
        self.outcome = Outcome([task.submit_s for task in tasks], [-1] * len(tasks))

    def run(self) -> Outcome:
        """Replay all jobs to their end. Raises EngineFault if some never end."""
        began, began_cpu = time.perf_counter(), time.process_time()
        while self._step():
            if self.outcome.batches - self._ended_at > CIRCLES:
                raise EngineFault(
                    f"at {self._now_s} s: {CIRCLES:,} instants in which no job ends, it circles"
                )
        if self._ended < len(self._jobs):
            left = len(self._jobs) - self._ended
            raise EngineFault(f"{left} of {len(self._jobs)} jobs have not ended, and never will")
        self.outcome.wall_s = time.perf_counter() - began
        self.outcome.cpu_s = time.process_time() - began_cpu
        if self._progress is not None:
            self._progress(self._ended)
        return self.outcome

    def _step(self) -> bool:
        """Hand over the next instant; False when there is none."""
        now_s = self._next_s()
        if now_s is None:
            return False
        self._now_s = now_s
        events = self._happened(now_s)
        if events:
            actions = self._asked(events, now_s)
            self.outcome.events += len(events)
            self.outcome.batches += 1
            for action in actions:
                _CARRY_OUT[type(action)](self, action, now_s)
            if self._observer is not None:
                self._observer(now_s, events, actions)
        return True

    def _asked(self, events: list[Event], now_s: int) -> Sequence[Action]:
        try:
            return self._engine.handle_all(events, now_s)
        except Exception:
            if self._observer is not None:
                self._observer(now_s, events, ())  # a log has to hold what the engine fails on
            raise

    def _next_s(self) -> int | None:
        soonest: float = self._wake_s
        due_s = self._clock.next_s()
        if due_s is not None and due_s < soonest:
            soonest = due_s
        if self._arrived < len(self._jobs):
            soonest = min(soonest, self._jobs[self._arrived].task.submit_s)
        return None if soonest == NEVER else int(soonest)

    def _happened(self, now_s: int) -> list[Event]:
        """What happens to running jobs, then who arrives, then the engine's own wish."""
        events: list[Event] = []
        for _, what, number, placement in self._clock.due(now_s):
            job = self._jobs[number]
            if job.placement == placement:
                event = _HAPPEN[what](self, number, job, now_s)
                if event is not None:
                    events.append(event)
        while self._arrived < len(self._jobs):
            job = self._jobs[self._arrived]
            if job.task.submit_s > now_s:
                break
            events.append(Submitted(job.spec))
            self._arrived += 1
        if self._wake_s <= now_s:
            self._wake_s = NEVER
            events.append(Wakeup())
        return events

    # What happens to jobs.

    def _setup_ends(self, number: int, job: _Job, now_s: int) -> Event | None:
        if job.leaving:
            return None
        job.working_s = now_s
        end_s = now_s + job.task.duration_s - job.kept_s
        self._clock.add(end_s, What.FINISH, number, job.placement)
        return SetupEnded(job.spec.job_id)

    def _finishes(self, number: int, job: _Job, now_s: int) -> Event | None:
        if job.leaving:
            return None
        job.told_s = now_s
        self._release(number, job, now_s, lost_s=0, preempted=False)
        self.outcome.finished_s[number] = now_s
        self._ended += 1
        self._ended_at = self.outcome.batches
        if self._progress is not None and self._ended % NOTED_EVERY == 0:
            self._progress(self._ended)
        return Finished(job.spec.job_id)

    def _is_gone(self, number: int, job: _Job, now_s: int) -> Event | None:
        done_s = job.kept_s + (0 if job.working_s is None else job.told_s - job.working_s)
        lost_s = done_s % self._checkpoint_s if self._checkpoint_s else 0
        # Work before this placement ends at a checkpoint, so only work of this one can be lost.
        self._release(number, job, now_s, lost_s=lost_s, preempted=True)
        job.kept_s = done_s - lost_s
        return Gone(job.spec.job_id, saved_s=float(job.kept_s))

    def _release(self, number: int, job: _Job, now_s: int, *, lost_s: int, preempted: bool) -> None:
        gpus = job.spec.gpus
        self._free += gpus
        job.running = job.leaving = False
        job.placement += 1
        self.outcome.spans.append(
            Span(number, gpus, job.placed_s, job.working_s, job.told_s, now_s, lost_s, preempted)
        )

    # What the engine wants.

    def _start(self, action: Start, now_s: int) -> None:
        number = self._number[action.job_id]
        job = self._jobs[number]
        self._free -= job.spec.gpus
        if job.running or self._free < 0:
            raise EngineFault(f"at {now_s} s job {action.job_id} was started without room for it")
        job.running, job.placed_s, job.working_s = True, now_s, None
        self._clock.add(now_s + job.task.setup_s, What.SETUP_END, number, job.placement)

    def _preempt(self, action: Preempt | Kill, now_s: int) -> None:
        number = self._number[action.job_id]
        job = self._jobs[number]
        if not job.running or job.leaving:
            raise EngineFault(f"at {now_s} s job {action.job_id} was told to go, and is not there")
        job.leaving, job.told_s = True, now_s
        self._clock.add(now_s + self._grace_s, What.GONE, number, job.placement)

    def _wake_at(self, action: WakeAt, now_s: int) -> None:
        # Whole seconds, not before what was asked for; later than now, so that time always goes on.
        self._wake_s = NEVER if action.at_s is None else max(now_s + 1, math.ceil(action.at_s))


_HAPPEN: dict[int, Callable[[Driver, int, _Job, int], Event | None]] = {
    What.FINISH: Driver._finishes,
    What.GONE: Driver._is_gone,
    What.SETUP_END: Driver._setup_ends,
}
_CARRY_OUT: dict[type, Callable[..., None]] = {
    Start: Driver._start,
    Preempt: Driver._preempt,
    Kill: Driver._preempt,
    WakeAt: Driver._wake_at,
}
