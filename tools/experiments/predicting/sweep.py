"""A sweep of speeds and load: which path was best, which one `auto` took. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import msgspec

from cachexfs.durability.paths import PATHS
from cachexfs.durability.score import Forecast, scores

MATTERS = 0.1
"""Relative: only where the paths differ by more is one of them better."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One pair of speeds (megabits a second) under one load.

    `forecasts`: of whole writes, as the mounts of all paths made them.
    `safe_s`: path -> its times to safety, in turns. `taken`: the paths that `auto` took, once it
    had measured; `ahead`: how many files were closed just before each.
    """

    peers_mbit: int
    pfs_mbit: int
    ahead: int
    safe_s: dict[str, list[float]]
    taken: list[str]
    auto_s: list[float]
    forecasts: list[Forecast] = []

    def time_of(self, path: str) -> float:
        """The median time to safety of a path."""
        return median(self.safe_s[path])

    @property
    def best(self) -> str:
        """The path that was safe soonest."""
        return min(PATHS, key=self.time_of)

    @property
    def counts(self) -> bool:
        """Whether the slowest path takes longer than the fastest by more than `MATTERS`."""
        times = [self.time_of(path) for path in PATHS]
        return max(times) > (1.0 + MATTERS) * min(times)

    @property
    def right(self) -> int:
        """How often auto took a path than which none was faster by more than `MATTERS`."""
        limit_s = (1.0 + MATTERS) * self.time_of(self.best)
        return sum(self.time_of(path) <= limit_s for path in self.taken)


class Total(msgspec.Struct, frozen=True):
    """Over the cells that count."""

    cells: int
    decisions: int
    right: int

    @property
    def share(self) -> float:
        """Of decisions that were right."""
        return self.right / self.decisions if self.decisions else 0.0


def total(cells: Sequence[Cell]) -> Total:
    """Of the cells in which the paths differ."""
    counting = [cell for cell in cells if cell.counts]
    return Total(
        len(counting), sum(len(c.taken) for c in counting), sum(c.right for c in counting)
    )  # fmt: skip


def as_table(cells: Sequence[Cell]) -> str:
    """Markdown."""
    lines = [
        "| peers, or the only link | storage | files ahead | "
        + " | ".join(PATHS)
        + " | auto took | its time | right |",
        "|---|---|---|" + "---|" * len(PATHS) + "---|---|---|",
    ]
    for cell in cells:
        times = " | ".join(
            f"**{cell.time_of(path):.2f} s**"
            if path == cell.best
            else f"{cell.time_of(path):.2f} s"
            for path in PATHS
        )
        taken = ", ".join(f"{cell.taken.count(p)} {p}" for p in PATHS if p in cell.taken)
        right = f"{cell.right} of {len(cell.taken)}" if cell.counts else "(they are equal)"
        lines.append(
            f"| {cell.peers_mbit} Mbit/s | {cell.pfs_mbit} Mbit/s | {cell.ahead} | {times} | "
            f"{taken} | {median(cell.auto_s):.2f} s | {right} |"
        )
    return "\n".join([*lines, "", _sentence(cells), *_whole_writes(cells)])


def _whole_writes(cells: Sequence[Cell]) -> list[str]:
    """How the mounts' own forecasts of whole writes came true, in all cells."""
    made = scores(forecast for cell in cells for forecast in cell.forecasts)
    if not made:
        return []
    lines = [
        "",
        "| whole writes, by what the mounts forecast | forecasts | error | MAPE | "
        "inside 50 / 90 / 95 % | pinball |",
        "|---|---|---|---|---|---|",
    ]
    for one in made:
        inside = " / ".join(f"{100 * one.coverage[level]:.0f}" for level in ("50", "90", "95"))
        lines.append(
            f"| {one.phase} | {one.forecasts} | {1000 * one.error_s:.3g} ms | "
            f"{100 * one.mape:.1f} % | {inside} | {1000 * one.pinball_s:.3g} ms |"
        )
    return lines


def _sentence(cells: Sequence[Cell]) -> str:
    made = total(cells)
    return (
        f"auto: {made.right} of {made.decisions} decisions right ({100 * made.share:.1f} %) in the "
        f"{made.cells} of {len(cells)} cells where the paths differ by more than "
        f"{100 * MATTERS:.0f} %"
    )
