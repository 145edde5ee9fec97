"""Measured times, their medians and ratios, and how they are shown. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Series:
    """The times that moving `size_bytes` took, one for each round, in seconds."""

    name: str
    size_bytes: int
    times_s: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """The median time."""
        return median(self.times_s)

    @property
    def bytes_per_s(self) -> float:
        """The rate at the median time."""
        return self.size_bytes / self.median_s

    def speed_against(self, other: Series) -> float:
        """How many times as fast as `other` this is, by the medians."""
        return self.bytes_per_s / other.bytes_per_s


def in_turns(
    measures: Mapping[str, Callable[[], float]], rounds: int, size_bytes: int
) -> list[Series]:
    """Measure each once a round, another one first each time: what drifts then drifts for all."""
    names = list(measures)
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            times[name].append(measures[name]())
    return [Series(name, size_bytes, tuple(times[name])) for name in names]


def table(series: Sequence[Series]) -> list[str]:
    """A line for each, with how many times as fast as each other the last one is."""
    last = series[-1]
    width = max(len(each.name) for each in series)
    lines = [f"{'':<{width}}    median  GB/s  (slowest to fastest)  {last.name} is"]
    for each in series:
        slow, fast = (each.size_bytes / time_s / 1e9 for time_s in _extremes(each))
        line = f"{each.name:<{width}}  {each.median_s:6.3f} s  {each.bytes_per_s / 1e9:5.2f}"
        line += f"  ({slow:5.2f} to {fast:5.2f})    "
        same = each is last
        lines.append(line.rstrip() if same else f"{line}  {last.speed_against(each):.2f} of it")
    return lines


def as_json(series: Sequence[Series], **conditions: Any) -> dict[str, Any]:
    """The same for programs; `ratio` is the last one's speed over each one's."""
    return {
        **conditions,
        "results": [
            {
                "name": each.name,
                "size_bytes": each.size_bytes,
                "times_s": list(each.times_s),
                "median_s": each.median_s,
                "bytes_per_s": each.bytes_per_s,
                "ratio": series[-1].speed_against(each),
            }
            for each in series
        ],
    }


def _extremes(series: Series) -> tuple[float, float]:
    return max(series.times_s), min(series.times_s)
