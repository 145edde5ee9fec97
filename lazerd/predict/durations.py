"""How long jobs take: a histogram over finished jobs, asked under the condition "it took longer".

Buckets grow by a constant factor, so that a few dozen hold seconds and months with the same
relative error, a million jobs take the room of one, and an answer costs a walk over the buckets.
The conditional mean rests on the sums in the buckets and not on their middles, so it has no error
of rounding except in the bucket where the age lies.
"""

from __future__ import annotations

import math

PER_DOUBLING = 4
"""Buckets for each factor of two: 19 % wide, below the spread of any two like jobs."""
SMALLEST_S = 1.0


def bucket_of(value: float) -> int:
    """The number of the bucket that holds `value`; all below `SMALLEST_S` share the first."""
    if value <= SMALLEST_S:
        return 0
    return 1 + int(math.log2(value / SMALLEST_S) * PER_DOUBLING)


def lower_edge(bucket: int) -> float:
    """The least value in the bucket."""
    if bucket == 0:
        return 0.0
    return float(SMALLEST_S * 2.0 ** ((bucket - 1) / PER_DOUBLING))


class Durations:
    """What was seen, by bucket; any unit, the same for all."""

    __slots__ = ("count", "counts", "sums")

    def __init__(self) -> None:
        self.count = 0
        self.counts: list[int] = []
        self.sums: list[float] = []

    def add(self, value: float) -> None:
        """One more was seen."""
        bucket = bucket_of(value)
        missing = bucket + 1 - len(self.counts)
        if missing > 0:
            self.counts.extend([0] * missing)
            self.sums.extend([0.0] * missing)
        self.count += 1
        self.counts[bucket] += 1
        self.sums[bucket] += value

    def mean_beyond(self, age: float, at_least: int) -> float | None:
        """The mean of those above `age`, or None when fewer than `at_least` are."""
        first = bucket_of(age) + 1 if age > 0 else 0
        seen = sum(self.counts[first:])
        if seen < at_least:
            return None
        return sum(self.sums[first:]) / seen
