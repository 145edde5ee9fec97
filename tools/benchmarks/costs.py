"""What small operations cost in a place: medians in microseconds, and how to show them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any


@dataclass
class Costs:
    """Seconds for one operation of each kind, as often as it was measured."""

    name: str
    times_s: dict[str, list[float]] = field(default_factory=dict)

    def note(self, operation: str, *times_s: float) -> None:
        """Add what was measured."""
        self.times_s.setdefault(operation, []).extend(times_s)

    def median_us(self, operation: str) -> float:
        """The median, in microseconds."""
        return median(self.times_s[operation]) * 1e6


def table(costs: Sequence[Costs]) -> list[str]:
    """A line for each operation; the last place is held against the one before it."""
    *_, other, last = costs
    width = max(len(operation) for operation in last.times_s)
    columns = [max(len(each.name), 8) for each in costs]
    names = "  ".join(f"{each.name:>{c}}" for each, c in zip(costs, columns, strict=True))
    lines = [f"{'microseconds':<{width}}  {names}  last is"]
    for operation in last.times_s:
        medians = "  ".join(
            f"{each.median_us(operation):>{c}.1f}" for each, c in zip(costs, columns, strict=True)
        )
        ratio = last.median_us(operation) / other.median_us(operation)
        lines.append(f"{operation:<{width}}  {medians}  {ratio:.2f} of {other.name}")
    return lines


def as_json(costs: Sequence[Costs], **conditions: Any) -> dict[str, Any]:
    """The same for programs."""
    results = [
        {
            "name": each.name,
            "median_us": {operation: each.median_us(operation) for operation in each.times_s},
        }
        for each in costs
    ]
    return {**conditions, "results": results}
