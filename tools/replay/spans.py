"""What became of the jobs: each placement as a span of time, and every GPU-second by its cause."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


class Span(NamedTuple):
    """One placement of one job, from the moment it held its GPUs to the moment it let them go.

    `working_s` is when its set-up ended; None: it was told to go before. `lost_s` is the work of
    this placement that the job has to do again.
    """

    job: int
    gpus: int
    placed_s: int
    working_s: int | None
    told_s: int
    """When it was told to go, or ended by itself."""
    released_s: int
    lost_s: int
    preempted: bool

    @property
    def futile(self) -> bool:
        """It was preempted before its set-up ended."""
        return self.preempted and self.working_s is None

    @property
    def barren(self) -> bool:
        """It was preempted and had saved no progress since it was placed; futile ones are too."""
        return self.preempted and (self.working_s is None or self.kept_s == 0)

    @property
    def kept_s(self) -> int:
        """Work that need not be done again."""
        return 0 if self.working_s is None else self.told_s - self.working_s - self.lost_s


@dataclass
class GpuSeconds:
    """GPU-seconds from placement to release, by cause. The causes exclude each other."""

    executed: int = 0
    """Work that was kept."""
    setup: int = 0
    """Set-ups that came to their end."""
    futile: int = 0
    """Set-ups that a preemption cut off."""
    lost: int = 0
    """Work that a preemption threw away: it was done after the last checkpoint."""
    leaving: int = 0
    """From the signal to the release."""

    @property
    def used(self) -> int:
        """All of them."""
        return self.executed + self.setup + self.futile + self.lost + self.leaving

    def add(self, span: Span) -> None:
        """Count one placement."""
        gpus = span.gpus
        self.leaving += (span.released_s - span.told_s) * gpus
        if span.working_s is None:
            self.futile += (span.told_s - span.placed_s) * gpus
            return
        self.setup += (span.working_s - span.placed_s) * gpus
        self.lost += span.lost_s * gpus
        self.executed += span.kept_s * gpus


@dataclass
class Outcome:
    """A finished replay: for each job, by its number, when it came and ended, and all spans."""

    submitted_s: list[int]
    finished_s: list[int]
    spans: list[Span] = field(default_factory=list)
    events: int = 0
    batches: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0

    def gpu_seconds(self) -> GpuSeconds:
        """All GPU time by cause."""
        return count(self.spans)

    def completion_s(self) -> list[int]:
        """For each job: finish minus submission."""
        return [end - start for start, end in zip(self.submitted_s, self.finished_s, strict=True)]

    def waiting_s(self) -> list[int]:
        """For each job: all the time in which it held no GPU, also after preemptions."""
        waiting = self.completion_s()
        for span in self.spans:
            waiting[span.job] -= span.released_s - span.placed_s
        return waiting


def count(spans: Iterable[Span]) -> GpuSeconds:
    """The GPU time of these placements by cause."""
    total = GpuSeconds()
    for span in spans:
        total.add(span)
    return total
