"""The figure: how long saves took, as distributions, and the storage host's load beside them."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from tools.experiments.varying.findings import Findings
from tools.experiments.varying.plan import PLACES, WRITERS, Place, Profile

COLOURS: dict[Place, str] = {
    "direct": "#b2182b", "durable": "#ef8a62", "replicated": "#2166ac", "copy": "#92c5de",
    "captured": "#1b7837", "tmpfs": "#999999",
}  # fmt: skip
LINES = {"raw": "-", "torch": "--"}
_A_COLUMN, _HEIGHT = 4.6, 6.4  # inches


def draw(findings: Findings, path: Path) -> None:
    """A column for each profile: above the distributions, below the storage host's link."""
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    plt: Any = importlib.import_module("matplotlib.pyplot")
    profiles = findings.plan.profiles
    figure, axes = plt.subplots(
        2, len(profiles), figsize=(_A_COLUMN * len(profiles), _HEIGHT), squeeze=False,
        height_ratios=(3, 1.3), layout="constrained",
    )  # fmt: skip
    for column, profile in enumerate(profiles):
        _distributions(axes[0][column], findings, profile)
        _load(axes[1][column], findings, profile)
    axes[0][0].set_ylabel("part of the saves that took no longer")
    axes[1][0].set_ylabel("storage host, Mbit/s in")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _distributions(axis: Any, findings: Findings, profile: Profile) -> None:
    for place, name in PLACES.items():
        for writer in WRITERS:
            times = sorted(findings.times(profile, writer, place))
            if not times:
                continue
            parts = [(rank + 1) / len(times) for rank in range(len(times))]
            axis.step(
                [times[0], *times], [0, *parts], where="post", color=COLOURS[place],
                linestyle=LINES[writer], linewidth=1.4, label=f"{name}, {writer}",
            )  # fmt: skip
    axis.set_xscale("log")
    axis.set_xlabel("seconds")
    axis.set_title(profile)
    axis.grid(alpha=0.25)


def _load(axis: Any, findings: Findings, profile: Profile) -> None:
    loads = findings.load_in(profile)
    if not loads:
        return
    begin = loads[0].at_s
    axis.fill_between(
        [load.at_s - begin for load in loads], [load.in_mbit for load in loads],
        color="#555555", linewidth=0,
    )  # fmt: skip
    weather = [(at_s - begin, each.rate_bits / 1e6) for at_s, each in findings.weather[profile]]
    end = loads[-1].at_s - begin
    times = [max(0.0, at_s) for at_s, _ in weather] + [end]
    rates = [rate for _, rate in weather]
    axis.step(times, [*rates, rates[-1]], where="post", color="#b2182b", linewidth=0.8)
    axis.set_xlim(0, end)
    axis.set_xlabel("seconds")
