"""A job as a trace tells it, and which jobs of a trace are replayed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job. Times are in seconds; `submit_s` counts from wherever the trace does."""

    id: str
    submit_s: float
    duration_s: float
    gpus: int
    user: str = ""
    name: str = ""
    priority: int = 0


@dataclass(frozen=True)
class Selection:
    """Which jobs of a trace to replay, and how much faster they come than they did."""

    since_s: float | None = None
    min_gpus: int = 1
    limit: int | None = None
    compress: float = 1.0

    def of(self, jobs: Iterable[TraceJob]) -> list[TraceJob]:
        """The jobs in order of submission, the first at 0, in whole seconds.

        Jobs of the same second keep the order of the trace. `compress` divides the times of
        submission and leaves the durations: 2 makes the load twice as high. Whole seconds are the
        resolution of the published traces; a job takes at least one.
        """
        kept = [job for job in jobs if self._wants(job)]
        kept.sort(key=lambda job: job.submit_s)
        kept = kept[: self.limit]
        first_s = kept[0].submit_s if kept else 0.0
        return [self._placed(job, first_s) for job in kept]

    def _wants(self, job: TraceJob) -> bool:
        return job.gpus >= self.min_gpus and (self.since_s is None or job.submit_s >= self.since_s)

    def _placed(self, job: TraceJob, first_s: float) -> TraceJob:
        submit_s = round((job.submit_s - first_s) / self.compress)
        return replace(job, submit_s=submit_s, duration_s=max(1, round(job.duration_s)))
