"""How much work a job needs in all, given that it has already done some.

Three sources, each asked again whenever a job outlives its answer. What the user gave is taken as
it is, and doubled when it was too short: an answer cut to "about to end" made the mean completion
time 29 % longer on one trace, because such a job is spared for ever. History is the mean of like
jobs that took longer than this one has, from the narrowest group with enough of them. Without
information the group is everybody. Where nobody took longer, a job is expected to take twice what
it took, which is what a heavy tail with index 2 says (its mean beyond `a` is `2a`).
"""

from __future__ import annotations

from typing import Protocol

from lazerd.model.job import JobSpec
from lazerd.predict.durations import Durations

UNKNOWN_S = 3_600.0
"""Work of a job before anybody has finished: an hour, the round number nearest to the median of
GPU jobs in Philly (1,144 s) and their mean (13,136 s) on a logarithmic scale."""
LEAST_S = 1.0
"""No job is expected to be shorter: the resolution of all traces."""
ENOUGH = 3
"""Like jobs that make a group worth asking; with fewer the next wider one answers."""


class Remaining(Protocol):
    """A source of durations."""

    source: str

    def total_s(self, spec: JobSpec, age_s: float) -> float:
        """Work in all, in seconds, of a job that has done `age_s`; more than `age_s`."""
        ...

    def learn(self, spec: JobSpec, total_s: float) -> None:
        """A job ended after `total_s` seconds of work."""
        ...


class History:
    """Finished jobs, by groups from narrow to wide: user, name and size; user and size; all."""

    source = "history"

    def __init__(self) -> None:
        self._groups: dict[tuple[object, ...], Durations] = {}

    def total_s(self, spec: JobSpec, age_s: float) -> float:
        for group in self._groups_of(spec):
            seen = self._groups.get(group)
            mean = seen.mean_beyond(age_s, ENOUGH) if seen else None
            if mean is not None:
                return max(mean, age_s + LEAST_S)
        return max(UNKNOWN_S, 2 * age_s)

    def learn(self, spec: JobSpec, total_s: float) -> None:
        for group in self._groups_of(spec):
            self._groups.setdefault(group, Durations()).add(total_s)

    def _groups_of(self, spec: JobSpec) -> tuple[tuple[object, ...], ...]:
        return ((spec.user, spec.name, spec.gpus), (spec.user, spec.gpus), (spec.gpus,), ())


class Everybody(History):
    """No information about a job but how long jobs take in general."""

    source = "none"

    def _groups_of(self, spec: JobSpec) -> tuple[tuple[object, ...], ...]:
        return ((),)


class Given(History):
    """What the user said; history for a user who said nothing."""

    source = "given"

    def total_s(self, spec: JobSpec, age_s: float) -> float:
        if spec.estimate_s is None:
            return super().total_s(spec, age_s)
        total_s = max(spec.estimate_s, LEAST_S)
        while total_s <= age_s:
            total_s *= 2
        return total_s

    def learn(self, spec: JobSpec, total_s: float) -> None:
        if spec.estimate_s is None:
            super().learn(spec, total_s)
