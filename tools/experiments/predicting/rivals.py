"""The simple predictors that a model has to beat. numpy.

Each knows, when a file begins, the sizes and the times of those that have ended by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

RIVALS = ("last", "mean", "linear", "ewma")
"""The last time; the mean of all; a straight line over the size (least squares); exponentially
weighted moving average."""

EWMA_GAIN = 0.3


class Timed(NamedTuple):
    """Something that began, and what it took."""

    begin_s: float
    size_bytes: int
    elapsed_s: float

    @property
    def end_s(self) -> float:
        """When it was known."""
        return self.begin_s + self.elapsed_s


def guesses(series: Sequence[Timed]) -> list[dict[str, float]]:
    """For each of a series, what each rival had said at its begin; {} before anything ended."""
    by_end = sorted(series, key=lambda one: one.end_s)
    return [_guess([past for past in by_end if past.end_s <= one.begin_s], one) for one in series]


def _guess(past: Sequence[Timed], one: Timed) -> dict[str, float]:
    if not past:
        return {}
    times = np.array([each.elapsed_s for each in past])
    return {
        "last": float(times[-1]),
        "mean": float(np.mean(times)),
        "linear": _on_the_line(past, times, one.size_bytes),
        "ewma": _smoothed(times),
    }


def _on_the_line(past: Sequence[Timed], times: np.typing.NDArray[np.float64], size: int) -> float:
    sizes = np.array([each.size_bytes / 1e6 for each in past])
    if float(np.ptp(sizes)) < 1e-3:
        return float(np.mean(times))
    slope, offset = np.polyfit(sizes, times, 1)
    return max(float(slope * size / 1e6 + offset), 1e-3)


def _smoothed(times: np.typing.NDArray[np.float64]) -> float:
    value = float(times[0])
    for time_s in times[1:]:
        value += EWMA_GAIN * (float(time_s) - value)
    return value
