"""What was forecast and what was seen, as a figure. matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cachexfs.durability.score import LEVELS
from tools.experiments.predicting.deaths import Run
from tools.experiments.predicting.held import Held, Row
from tools.experiments.predicting.replay import lost_in
from tools.experiments.predicting.rivals import RIVALS
from tools.experiments.predicting.sweep import Cell

_LOW, _MEDIAN, _HIGH = (LEVELS.index(p) for p in (0.05, 0.5, 0.95))


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def draw_writes(
    file: Path, held: Sequence[Held], rows: Sequence[Row], busy: Sequence[tuple[float, float]]
) -> None:
    """Two rows: a run of each profile over time; and the errors beside the rivals'."""
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(2, 2, figsize=(15, 9), constrained_layout=True)
    for axis, profile in zip(axes[0], ("steady", "bursts"), strict=True):
        _over_time(axis, [h for h in held if h.profile == profile and h.target == "durable"], busy)
        axis.set_title(f"{profile}: time until durable, forecast at the begin of each write")
    for axis, profile in zip(axes[1], ("steady", "bursts"), strict=True):
        _errors(axis, [row for row in rows if row.profile == profile])
        axis.set_title(f"{profile}: mean relative error")
    figure.savefig(file)
    pyplot.close(figure)


def _over_time(axis: Any, held: Sequence[Held], busy: Sequence[tuple[float, float]]) -> None:
    shown = sorted((h for h in held if h.run == held[0].run), key=lambda h: h.at_s)
    zero_s = shown[0].at_s
    at = [h.at_s - zero_s for h in shown]
    for begin_s, end_s in busy:
        if zero_s <= begin_s <= shown[-1].at_s:
            axis.axvspan(begin_s - zero_s, end_s - zero_s, color="0.9")
    low = [h.quantiles[_MEDIAN] - h.quantiles[_LOW] for h in shown]
    high = [h.quantiles[_HIGH] - h.quantiles[_MEDIAN] for h in shown]
    median = [h.quantiles[_MEDIAN] for h in shown]
    axis.errorbar(at, median, (low, high), fmt=".", color="C0", alpha=0.5, label="median, 90 %")
    axis.plot(at, [h.seen_s for h in shown], "kx", markersize=4, label="seen")
    axis.set_xlabel("seconds of the run; grey: the neighbour is busy")
    axis.set_yscale("log")
    axis.legend()


def _errors(axis: Any, rows: Sequence[Row]) -> None:
    names = ("model", *RIVALS, "two runs")
    for i, name in enumerate(names):
        values = [
            row.score.mape if name == "model" else row.rivals.get(name, row.floor or 0.0)
            for row in rows
        ]
        axis.bar([j + i / (len(names) + 1) for j in range(len(rows))], values, 0.13, label=name)
    axis.set_xticks([j + 0.35 for j in range(len(rows))], [row.target for row in rows])
    axis.set_yscale("log")
    axis.legend(ncols=3, fontsize="small")


def draw_deaths(file: Path, run: Run) -> None:
    """For each path what the deaths lost, and what was forecast."""
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(1, len(run.verdicts), figsize=(15, 4.5), constrained_layout=True)
    for axis, one, path in zip(axes, run.verdicts, run.saves, strict=True):
        saves = sorted(run.saves[path], key=lambda save: save.begin_s)
        later = saves[-one.saves - 1 :]
        axis.hist(lost_in(saves, later[0].begin_s, later[-1].begin_s, seed=7), 30, color="0.75")
        axis.axvline(one.lost_mean_s, color="k", label="mean of what was lost")
        axis.axvspan(one.low_s, one.high_s, color="C1", alpha=0.5, label="forecast of the mean")
        axis.set_title(f"{one.path}: {one.deaths} deaths over {one.saves} saves")
        axis.set_xlabel("seconds of work lost")
        axis.legend(fontsize="small")
    figure.savefig(file)
    pyplot.close(figure)


def draw_paths(file: Path, cells: Sequence[Cell]) -> None:
    """Which path was best over the speeds, and whether auto took it; a square for each load."""
    pyplot = _pyplot()
    loads = sorted({cell.ahead for cell in cells})
    figure, axes = pyplot.subplots(
        1, len(loads), figsize=(6.5 * len(loads), 5.5), constrained_layout=True, squeeze=False
    )
    for axis, load in zip(axes[0], loads, strict=True):
        for cell in (cell for cell in cells if cell.ahead == load):
            right = cell.right == len(cell.taken)
            color = "C2" if right else "C3" if cell.counts else "0.6"
            axis.plot(cell.peers_mbit, cell.pfs_mbit, "s", markersize=38, color=color, alpha=0.5)
            text = f"{cell.best}\n{'/'.join(sorted(set(cell.taken)))}"
            axis.annotate(text, (cell.peers_mbit, cell.pfs_mbit), ha="center", va="center")
        axis.set(xscale="log", yscale="log", xlabel="peers, Mbit/s", ylabel="storage, Mbit/s")
        axis.set_title(f"{load} files ahead: the best path, and what auto took")
        axis.margins(0.25)
    figure.savefig(file)
    pyplot.close(figure)
