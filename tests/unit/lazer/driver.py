"""A driver for the engine's tests: simulated time, victims gone at once, set-ups known to it."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from lazerd.engine import Engine
from lazerd.model.actions import Kill, Preempt, Start, WakeAt
from lazerd.model.events import Event, Finished, Gone, SetupEnded, Submitted, Wakeup
from lazerd.model.job import JobSpec


@dataclass(slots=True)
class Life:
    """The truth about a job, and what became of it."""

    spec: JobSpec
    work_s: float
    setup_s: float
    done_s: float = 0.0
    run: int = 0
    placed_s: float | None = None
    starts: list[float] = field(default_factory=list)
    preempted: list[float] = field(default_factory=list)
    futile: int = 0
    barren: int = 0
    lost_gpu_s: float = 0.0
    end_s: float | None = None


class Driver:
    """Plays jobs into an engine until all have ended; `grace_s` is how long victims take."""

    def __init__(
        self, engine: Engine, grace_s: float = 0.0, check: Callable[[Engine], None] | None = None
    ) -> None:
        self.engine = engine
        self.lives: dict[str, Life] = {}
        self.log: list[tuple[float, tuple[Event, ...]]] = []
        self.keep_log = check is not None
        self._grace_s = grace_s
        self._check = check
        self._heap: list[tuple[float, int, int, Event]] = []
        self._count = 0
        self._wake_s: float | None = None
        self.cycles = 0

    def add(self, spec: JobSpec, work_s: float, setup_s: float) -> None:
        self.lives[spec.job_id] = Life(spec, work_s, setup_s)
        self.at(spec.submitted_s, Submitted(spec))

    def at(self, at_s: float, event: Event, run: int = -1) -> None:
        self._count += 1
        heapq.heappush(self._heap, (at_s, self._count, run, event))

    def run(self) -> dict[str, Life]:
        while self._heap or self._wake_s is not None:
            now_s, events = self._next()
            if events:
                self._step(events, now_s)
        return self.lives

    def _next(self) -> tuple[float, list[Event]]:
        first_s = self._heap[0][0] if self._heap else float("inf")
        events: list[Event] = []
        if self._wake_s is not None and self._wake_s <= first_s:
            first_s, self._wake_s = self._wake_s, None
            events.append(Wakeup())
        while self._heap and self._heap[0][0] == first_s:
            _, _, run, event = heapq.heappop(self._heap)
            if run < 0 or self.lives[event.job_id].run == run:
                events.append(event)
        return first_s, events

    def _step(self, events: Iterable[Event], now_s: float) -> None:
        batch = tuple(events)
        while batch:
            if self.keep_log:
                self.log.append((now_s, batch))
            for event in batch:
                self._observe(event, now_s)
            actions = self.engine.handle_all(batch, now_s)
            self.cycles += 1
            if self._check is not None:
                self._check(self.engine)
            batch = tuple(e for action in actions if (e := self._do(action, now_s)) is not None)

    def _observe(self, event: Event, now_s: float) -> None:
        if isinstance(event, Finished):
            life = self.lives[event.job_id]
            life.end_s = now_s
            life.run += 1

    def _do(self, action: object, now_s: float) -> Event | None:
        if isinstance(action, WakeAt):
            self._wake_s = action.at_s
        elif isinstance(action, Start):
            life = self.lives[action.job_id]
            life.placed_s = now_s
            life.starts.append(now_s)
            work_s = now_s + life.setup_s
            self.at(work_s, SetupEnded(action.job_id), life.run)
            self.at(work_s + life.work_s - life.done_s, Finished(action.job_id), life.run)
        elif isinstance(action, Preempt | Kill):
            return self._evict(action.job_id, now_s)
        return None

    def _evict(self, job_id: str, now_s: float) -> Event | None:
        life = self.lives[job_id]
        assert life.placed_s is not None
        worked_s = now_s - life.placed_s - life.setup_s
        interval_s = life.spec.checkpoint_s
        saved_s = max(worked_s, 0.0)
        if interval_s == float("inf"):
            saved_s = 0.0
        elif interval_s is not None:
            saved_s = saved_s // interval_s * interval_s
        life.futile += worked_s < 0
        life.barren += saved_s <= 0
        life.lost_gpu_s += (now_s - life.placed_s - saved_s) * life.spec.gpus
        life.done_s += saved_s
        life.preempted.append(now_s)
        life.run += 1
        life.placed_s = None
        gone = Gone(job_id, life.done_s)
        if self._grace_s == 0:
            return gone
        self.at(now_s + self._grace_s, gone)
        return None
