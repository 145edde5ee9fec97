"""Nodes that die at random moments of a measured run, and what each death would have lost. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import mean

import msgspec

from cachexfs.durability.lost_work import Loss

DEATHS = 500


class Save(msgspec.Struct, frozen=True):
    """A checkpoint of a run: when its save began and when it was safe (since the epoch)."""

    begin_s: float
    safe_s: float
    size_bytes: int = 0


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Of one path. `low_s`, `high_s`: where the mean of so many deaths was forecast to lie."""

    path: str
    saves: int
    deaths: int
    forecast: Loss
    low_s: float
    high_s: float
    lost_mean_s: float
    below_q95: float

    @property
    def held(self) -> bool:
        """Whether it lies there."""
        return self.low_s <= self.lost_mean_s <= self.high_s


def lost_in(saves: Sequence[Save], begin_s: float, end_s: float, seed: int) -> list[float]:
    """What is lost with each of `DEATHS` deaths at random moments between two.

    The first of `saves` must be safe before `begin_s`.
    """
    rng = random.Random(seed)
    return [
        dies_s - max(save.begin_s for save in saves if save.safe_s <= dies_s)
        for dies_s in (rng.uniform(begin_s, end_s) for _ in range(DEATHS))
    ]


def verdict(path: str, forecast: Loss, saves: Sequence[Save], since_s: float) -> Verdict:
    """Of the saves that begin after the forecast; each lasts until the next begins."""
    ordered = sorted(saves, key=lambda save: save.begin_s)
    later = [save.begin_s for save in ordered if save.begin_s >= since_s]
    lost = lost_in(ordered, later[0], later[-1], seed=7)
    low_s, high_s = forecast.interval_of_mean(DEATHS)
    return Verdict(
        path=path, saves=len(later) - 1, deaths=DEATHS, forecast=forecast, low_s=low_s,
        high_s=high_s, lost_mean_s=mean(lost),
        below_q95=mean(each <= forecast.q95_s for each in lost),
    )  # fmt: skip


def as_table(verdicts: Sequence[Verdict]) -> str:
    """Markdown."""
    lines = [
        "| path | saves | deaths | forecast, and the mean of so many in 95 % | really lost | "
        "below the 95 % forecast | |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {one.path} | {one.saves} | {one.deaths} | {one.forecast.mean_s:.3f} s, "
        f"{one.low_s:.3f} to {one.high_s:.3f} s | {one.lost_mean_s:.3f} s | "
        f"{100 * one.below_q95:.1f} % | {'held' if one.held else 'FAILED'} |"
        for one in verdicts
    ]
    return "\n".join(lines)
