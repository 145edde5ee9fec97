"""Which hours and jobs the excerpt shows, and the bars of a job in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tools.replay.spans import Outcome, Span

ROWS = 24
WAITING, SETUP, FUTILE, WORK, LOST = "#DDDDDD", "#56B4E9", "#D55E00", "#009E73", "#CC79A7"
Bar = tuple[float, float, str]
"""From, to (seconds), colour."""


@dataclass(frozen=True)
class Excerpt:
    """A window of time, and the jobs of most interest in it, by submission."""

    start_s: int
    end_s: int
    jobs: tuple[int, ...]

    def labels(self, outcome: Outcome) -> list[str]:
        """For each job: its number and GPUs."""
        gpus = {span.job: span.gpus for span in outcome.spans}
        return [f"{job} ({gpus[job]})" for job in self.jobs]

    def bars(self, outcome: Outcome, job: int) -> Iterator[Bar]:
        """What the job does in the window: a bar for waiting, and on it one for each placement."""
        yield from self._cut(outcome.submitted_s[job], outcome.finished_s[job], WAITING)
        for span in outcome.spans:
            if span.job == job:
                yield from self._placement(span)

    def _placement(self, span: Span) -> Iterator[Bar]:
        if span.working_s is None:
            yield from self._cut(span.placed_s, span.released_s, FUTILE)
            return
        kept_until_s = span.told_s - span.lost_s
        yield from self._cut(span.placed_s, span.working_s, SETUP)
        yield from self._cut(span.working_s, kept_until_s, WORK)
        yield from self._cut(kept_until_s, span.released_s, LOST)

    def _cut(self, start_s: int, end_s: int, colour: str) -> Iterator[Bar]:
        start, end = max(start_s, self.start_s), min(end_s, self.end_s)
        if start < end:
            yield start, end, colour


def find(outcomes: Sequence[Outcome]) -> Excerpt:
    """The hours in which the first of these preempts most, and jobs that it moves in them.

    As long as eight set-ups. Without any preemption: the first hours of the replay.
    """
    spans = outcomes[0].spans
    told_s = sorted(span.told_s for span in spans if span.preempted)
    length_s = max(600, 8 * _setup_s(spans))
    start_s = max(0, _densest(told_s, length_s) - length_s // 4)
    end_s = start_s + length_s + length_s // 4
    moved = [span for span in spans if start_s <= span.placed_s < end_s]
    moved += [span for span in spans if span.preempted and start_s <= span.told_s < end_s]
    moved.sort(key=lambda span: (not span.preempted, -span.gpus, span.job))
    jobs = sorted(_first(moved))
    return Excerpt(start_s, end_s, tuple(jobs))


def _first(spans: Sequence[Span]) -> list[int]:
    return list(dict.fromkeys(span.job for span in spans))[:ROWS]


def _setup_s(spans: Sequence[Span]) -> int:
    """The median set-up that ended."""
    setups = sorted(span.working_s - span.placed_s for span in spans if span.working_s is not None)
    return setups[len(setups) // 2]


def _densest(times_s: Sequence[int], length_s: int) -> int:
    """Where a window of this length holds most of the (ordered) times."""
    best, best_s, last = 0, 0, 0
    for first, start_s in enumerate(times_s):
        while last < len(times_s) and times_s[last] < start_s + length_s:
            last += 1
        if last - first > best:
            best, best_s = last - first, start_s
    return best_s
