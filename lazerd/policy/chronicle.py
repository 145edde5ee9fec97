"""What happened to each job: the events about it and the decisions for it, with their numbers.

Bounded, so that an engine can run for years: a job keeps its last `LINES`, and of jobs that have
ended the last `ENDED` are kept.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from lazerd.model.actions import Action
from lazerd.model.events import Event
from lazerd.model.weighing import Weighing

LINES = 64
"""Of a job's story: four or five for each start, so the last dozen of its starts."""
ENDED = 10_000
"""Jobs that can still be asked about after their end: a day of a busy cluster."""


class Line(NamedTuple):
    """Something that happened to a job at `at_s`."""

    at_s: float
    what: Event | Action | Weighing


class Chronicle:
    """The stories of all jobs that are not over, and of the last that are."""

    def __init__(self) -> None:
        self._stories: dict[str, list[Line]] = {}
        self._ended: deque[str] = deque()

    def add(self, job_id: str, at_s: float, what: Event | Action | Weighing) -> None:
        """One more line of the job's story."""
        story = self._stories.setdefault(job_id, [])
        story.append(Line(at_s, what))
        if len(story) > LINES:
            del story[1]

    def story(self, job_id: str) -> tuple[Line, ...]:
        """The job's lines, the first and the last ones where there were too many."""
        return tuple(self._stories.get(job_id, ()))

    def ended(self, job_id: str) -> str | None:
        """The job is over; returns one that is forgotten for it."""
        self._ended.append(job_id)
        if len(self._ended) <= ENDED:
            return None
        forgotten = self._ended.popleft()
        self._stories.pop(forgotten, None)
        return forgotten
