"""How long a job is in set-up: learned by class and number of GPUs.

A group with few observations leans on the wider one: its mean counts as `PRIOR` observations. So
the first job of a class is expected to be like all others, and the tenth like its own class.
"""

from __future__ import annotations

from lazerd.model.job import JobSpec

UNKNOWN_S = 300.0
"""Before anything was seen: five minutes, within "minutes to tens of minutes" (DESIGN 2.1)."""
PRIOR = 2.0


class Setups:
    """The set-ups seen so far, by (class, GPUs), class, GPUs, and all."""

    def __init__(self) -> None:
        self._seen: dict[tuple[object, ...], tuple[int, float]] = {}

    def expected_s(self, spec: JobSpec) -> float:
        """The set-up to expect of the job's next start, in seconds."""
        if spec.setup_s is not None:
            return spec.setup_s
        mean_s = UNKNOWN_S
        for group in self._groups(spec):
            count, sum_s = self._seen.get(group, (0, 0.0))
            mean_s = (sum_s + PRIOR * mean_s) / (count + PRIOR)
        return mean_s

    def learn(self, spec: JobSpec, seconds: float) -> None:
        """A job of this kind was in set-up for so long."""
        if spec.setup_s is not None:
            return
        for group in self._groups(spec):
            count, sum_s = self._seen.get(group, (0, 0.0))
            self._seen[group] = (count + 1, sum_s + seconds)

    @staticmethod
    def _groups(spec: JobSpec) -> tuple[tuple[object, ...], ...]:
        by_size = ("gpus", spec.gpus)
        return ((), by_size, ("class", spec.job_class), (spec.job_class, spec.gpus))
