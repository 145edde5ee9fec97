"""Figures of one run of the tool: waiting, lost GPU time, utilisation, and an excerpt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.replay.excerpt import Excerpt, find
from tools.replay.measures import quantile
from tools.replay.runs import Result
from tools.replay.series import held_gpus

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's palette, told apart with any colour vision (jfly.uni-koeln.de/color).
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
CAUSES = (
    ("setup", "set-ups that ended", "#56B4E9"),
    ("futile", "set-ups cut off (futile)", "#D55E00"),
    ("lost", "work since the last checkpoint", "#CC79A7"),
    ("leaving", "grace time", "#999999"),
)
BINS = 240
DPI = 120
DAY_S, HOUR_S, MINUTE_S = 86400, 3600, 60
WAITS = {0: "0", 60: "1 min", 600: "10 min", 3600: "1 h", 6 * 3600: "6 h", 86400: "1 day",
         7 * 86400: "1 week", 30 * 86400: "30 days"}  # fmt: skip


def draw_all(results: Sequence[Result], directory: Path, heading: str) -> list[Path]:
    """Write all figures. Needs matplotlib."""
    import matplotlib

    matplotlib.use("agg")
    paths = []
    for name, draw in _FIGURES.items():
        paths.append(directory / f"{name}.png")
        draw(results, paths[-1], heading.splitlines()[0])
    return paths


def draw_waiting(results: Sequence[Result], path: Path, title: str) -> None:
    """The share of jobs that waited longer than so long."""
    figure, axes = _one()
    for number, result in enumerate(results):
        waiting_s = sorted(result.outcome.waiting_s())
        shares = _log_shares(len(waiting_s))
        times_s = [quantile(waiting_s, 1 - share) for share in shares]
        style = "-" if number < len(PALETTE) else "--"
        axes.plot(times_s, [100 * share for share in shares], style, color=_colour(number),
                  label=result.row["policy"])  # fmt: skip
    axes.set_xscale("symlog", linthresh=MINUTE_S)
    axes.set_yscale("log")
    longest_s = max(max(result.outcome.waiting_s()) for result in results)
    axes.set_xlim(0, max(MINUTE_S, 1.3 * longest_s))
    axes.set_ylim(top=100)
    axes.yaxis.set_major_formatter("{x:g}")
    shown = {at_s: text for at_s, text in WAITS.items() if at_s <= 1.3 * longest_s}
    axes.set_xticks(list(shown), list(shown.values()))
    axes.minorticks_off()
    axes.set_xlabel("time without GPUs, before and between placements (linear below a minute)")
    axes.set_ylabel("jobs that wait longer (%)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    _save(figure, axes, path, title)


def _log_shares(jobs: int) -> list[float]:
    """From all jobs down to one of them."""
    steps = 200
    return [jobs ** (-at / steps) for at in range(steps + 1)]


def draw_lost(results: Sequence[Result], path: Path, title: str) -> None:
    """The GPU time that was not work, by cause."""
    figure, axes = _one(height=1.9 + 0.32 * len(results))
    names = [result.row["policy"] for result in results]
    totals = [result.outcome.gpu_seconds() for result in results]
    left = [0.0] * len(results)
    for cause, label, colour in CAUSES:
        shares = [100 * getattr(total, cause) / total.used for total in totals]
        if any(shares):
            axes.barh(names, shares, left=left, label=label, color=colour, height=0.7)
            left = [a + b for a, b in zip(left, shares, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("of the GPU time held (%); the rest is work that was kept")
    axes.grid(axis="x", alpha=0.3)
    figure.legend(fontsize=8, loc="outside lower center", ncols=2)
    _save(figure, axes, path, title)


def draw_utilisation(results: Sequence[Result], path: Path, title: str) -> None:
    """GPUs that are held, over time."""
    figure, axes = _one()
    end_s = max(max(result.outcome.finished_s) for result in results)
    for number, result in enumerate(results):
        held = held_gpus(result.outcome.spans, end_s, BINS)
        gpus = result.row["gpus"]
        days = [end_s * (at + 0.5) / BINS / DAY_S for at in range(BINS)]
        style = "-" if number < len(PALETTE) else "--"
        axes.plot(days, [100 * value / gpus for value in held], style, color=_colour(number),
                  linewidth=0.9, label=result.row["policy"])  # fmt: skip
    axes.set_ylim(0, 105)
    axes.set_xlim(0, end_s / DAY_S)
    axes.set_xlabel(f"days since the first submission (means over {end_s / BINS / HOUR_S:.1f} h)")
    axes.set_ylabel("GPUs held (%)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="lower left", ncols=2)
    _save(figure, axes, path, title)


def draw_excerpt(results: Sequence[Result], path: Path, title: str) -> None:
    """The same jobs in the same hours, under the most futile policy and under the last."""
    from matplotlib.patches import Patch
    from matplotlib.pyplot import subplots

    shown = _contrast(results)
    excerpt = find([result.outcome for result in shown])
    height = 1.6 + len(shown) * (0.7 + 0.14 * len(excerpt.jobs))
    figure, grid = subplots(
        len(shown), 1, figsize=(8, height), sharex=True, squeeze=False, layout="constrained"
    )
    for result, axes in zip(shown, grid[:, 0], strict=True):
        _gantt(axes, result, excerpt)
    grid[-1, 0].set_xlabel("hours since the first submission")
    colours = {"set-up": "#56B4E9", "set-up, cut off": "#D55E00", "work": "#009E73",
               "work, lost": "#CC79A7", "waiting": "#DDDDDD"}  # fmt: skip
    handles = [Patch(color=colour, label=label) for label, colour in colours.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=5, fontsize=8)
    figure.suptitle(title, fontsize=9)
    figure.savefig(path, dpi=DPI)
    _close(figure)


def _contrast(results: Sequence[Result]) -> list[Result]:
    most = max(results, key=lambda result: (result.row["futile"], result.row["preemptions"]))
    return [most] if most is results[-1] else [most, results[-1]]


def _gantt(axes: Axes, result: Result, excerpt: Excerpt) -> None:
    for row, job in enumerate(excerpt.jobs):
        for start_s, end_s, colour in excerpt.bars(result.outcome, job):
            axes.barh(row, (end_s - start_s) / HOUR_S, left=start_s / HOUR_S, color=colour,
                      height=0.8)  # fmt: skip
    axes.set_xlim(excerpt.start_s / HOUR_S, excerpt.end_s / HOUR_S)
    axes.set_yticks(range(len(excerpt.jobs)), excerpt.labels(result.outcome), fontsize=6)
    axes.invert_yaxis()
    axes.set_ylabel("job (GPUs)", fontsize=8)
    axes.set_title(result.row["policy"], fontsize=9, loc="left")


def _one(height: float = 4.2) -> tuple[Any, Axes]:
    from matplotlib.pyplot import subplots

    return subplots(figsize=(8, height), layout="constrained")


def _save(figure: Any, axes: Axes, path: Path, title: str) -> None:
    axes.set_title(title, fontsize=9)
    figure.savefig(path, dpi=DPI)
    _close(figure)


def _close(figure: Any) -> None:
    from matplotlib.pyplot import close

    close(figure)


def _colour(number: int) -> str:
    return PALETTE[number % len(PALETTE)]


_FIGURES: dict[str, Callable[[Sequence[Result], Path, str], None]] = {
    "waiting": draw_waiting,
    "lost": draw_lost,
    "utilisation": draw_utilisation,
    "excerpt": draw_excerpt,
}
