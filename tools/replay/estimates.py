"""What the engine is told about how long a job will take; it never sees the true duration."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tools.replay.draws import normal
from tools.replay.errors import OptionError
from tools.replay.traces import TraceJob

ESTIMATE_FORMS = "oracle, noise:SIGMA, history or none"
Guess = Callable[[TraceJob], "float | None"]


@dataclass(frozen=True)
class Estimates:
    """`seconds(job)` is the estimate that comes with the submission, None for none."""

    text: str
    seconds: Guess
    history: bool = False  # whether the engine may estimate from jobs that have ended


def parse_estimates(text: str, seed: int) -> Estimates:
    """`oracle`: the duration. `noise:1`: the duration times exp(sigma z), z standard normal, drawn
    once for each job. `history`: none, the engine looks at earlier jobs. `none`: none at all.

    Raises OptionError.
    """
    name, _, field = text.partition(":")
    if text in _PLAIN:
        return _PLAIN[text]
    try:
        sigma = float(field)
    except ValueError:
        sigma = -1.0
    if name != "noise" or not 0 <= sigma < math.inf:
        raise OptionError(f"--estimate {text}: not {ESTIMATE_FORMS}")
    return Estimates(text, _noisy(sigma, seed))


def _noisy(sigma: float, seed: int) -> Guess:
    def seconds(job: TraceJob) -> float:
        return max(1.0, round(job.duration_s * math.exp(sigma * normal(seed, "estimate", job.id))))

    return seconds


def _nothing(job: TraceJob) -> None:
    return None


_PLAIN = {
    "oracle": Estimates("oracle", lambda job: job.duration_s),
    "history": Estimates("history", _nothing, history=True),
    "none": Estimates("none", _nothing),
}
