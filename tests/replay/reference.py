"""A small engine, so that the driver's accounts can be checked by hand without the real one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lazerd.model.actions import Action, Preempt, Start, WakeAt
from lazerd.model.events import Event, Finished, Gone, Submitted
from lazerd.model.job import JobSpec


class Shortest:
    """The shortest estimate runs; with `eager`, it throws out longer jobs, in set-up or not."""

    def __init__(self, gpus: int, *, eager: bool = True, wake_s: float | None = None) -> None:
        self._free = gpus
        self._eager = eager
        self._waiting: list[JobSpec] = []
        self._running: dict[str, JobSpec] = {}
        self._leaving: dict[str, JobSpec] = {}
        self._wake_s = wake_s
        self.told: list[tuple[float, list[str]]] = []

    def handle_all(self, events: Iterable[Event], now_s: float) -> Sequence[Action]:
        """Start what fits, in order, and tell longer jobs to go for the first that does not."""
        given = list(events)
        self.told.append((now_s, [type(event).__name__ for event in given]))
        for event in given:
            self._take(event)
        self._waiting.sort(key=lambda spec: (spec.estimate_s, spec.job_id))
        actions = [*self._start()]
        if self._eager and self._waiting:
            actions += self._throw_out(self._waiting[0])
        if self._wake_s is not None:
            actions.append(WakeAt(self._wake_s))
            self._wake_s = None
        return actions

    def _take(self, event: Event) -> None:
        if isinstance(event, Submitted):
            self._waiting.append(event.job)
        elif isinstance(event, Finished | Gone):
            spec = self._running.pop(event.job_id, None) or self._leaving.pop(event.job_id)
            self._free += spec.gpus
            if isinstance(event, Gone):
                self._waiting.append(spec)

    def _start(self) -> Iterable[Action]:
        while self._waiting and self._waiting[0].gpus <= self._free:
            spec = self._waiting.pop(0)
            self._free -= spec.gpus
            self._running[spec.job_id] = spec
            yield Start(spec.job_id, ((0, spec.gpus),))

    def _throw_out(self, first: JobSpec) -> list[Action]:
        leaving = sum(spec.gpus for spec in self._leaving.values())
        missing, victims = first.gpus - self._free - leaving, []
        for spec in sorted(self._running.values(), key=lambda spec: -(spec.estimate_s or 0)):
            if missing <= 0 or (spec.estimate_s or 0) <= (first.estimate_s or 0):
                break
            victims.append(spec)
            missing -= spec.gpus
        if missing > 0:
            return []
        for spec in victims:
            self._leaving[spec.job_id] = self._running.pop(spec.job_id)
        return [Preempt(spec.job_id, first.job_id, None) for spec in victims]
