"""How much times vary: the figures of a sample, and how sure a ratio of two of them is. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from statistics import fmean, median, stdev

import msgspec

RESAMPLED = 1000
COVERS = 0.9


class Spread(msgspec.Struct, frozen=True):
    """Of times in seconds. `p99_s` is the largest of up to 100 (nearest rank); `cv` is a ratio."""

    count: int
    mean_s: float
    median_s: float
    p99_s: float
    sd_s: float

    @property
    def cv(self) -> float:
        """The coefficient of variation: standard deviation / mean."""
        return self.sd_s / self.mean_s

    @classmethod
    def of(cls, times_s: Sequence[float]) -> Spread:
        """Of two times or more."""
        return cls(
            count=len(times_s),
            mean_s=fmean(times_s),
            median_s=median(times_s),
            p99_s=quantile(times_s, 0.99),
            sd_s=stdev(times_s),
        )


def quantile(times_s: Sequence[float], at: float) -> float:
    """The smallest time that so great a part of all does not exceed (nearest rank)."""
    return sorted(times_s)[max(0, math.ceil(at * len(times_s)) - 1)]


def cv_ratio_interval(
    above: Sequence[float], below: Sequence[float], seed: int = 1
) -> tuple[float, float]:
    """An interval that covers cv(above) / cv(below) in 90 % of cases: percentile bootstrap (Efron
    1979). With ten times it is too narrow rather than too wide."""
    random_ = random.Random(seed)
    ratios = sorted(
        _cv(random_.choices(above, k=len(above))) / _cv(random_.choices(below, k=len(below)))
        for _ in range(RESAMPLED)
    )
    tail = int(RESAMPLED * (1 - COVERS) / 2)
    return ratios[tail], ratios[-1 - tail]


def _cv(times_s: Sequence[float]) -> float:
    mean = fmean(times_s)
    variance = sum((time_s - mean) ** 2 for time_s in times_s) / (len(times_s) - 1)
    return max(math.sqrt(variance) / mean, 1e-9)  # a draw may be one time again and again
