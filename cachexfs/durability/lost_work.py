"""How much work a node's death costs, and how often to save. Pure.

          begin of a save                    safe                      the node dies
    ─────────┬──────────┬──────────────────────┬───────────────────────────┬───────▶ time
             │  save_s  │ lag: time to safety  │                           │
             └──────────┴──────────────────────┴───────── lost ────────────┘

What is lost is the time since the newest checkpoint that was safe *began* to be saved, since its
content is the training's state of that moment. So every second that a checkpoint is not safe yet
counts like a second of a longer interval.

    lost = u + j I   with u uniform in [0, I) and j the first that is safe: save_s + lag <= u + j I

First order (Young 1974): the interval I costs save_s / I of the time in saving and (I / 2 + lag) /
MTBF in lost work; the minimum is at I = sqrt(2 save_s MTBF), whatever the lag. Daly (2006) adds the
higher orders. Neither knows that a path can carry only so many bytes: where saves come faster than
they become safe they queue, and the lag grows with each. The simulation does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from cachexfs.durability.latency.curve import Curve

NODE_MTBF_S = 150 * 86400.0
"""The time between failures of a node that is believed before any was seen. Kokolis et al.
(Revisiting Reliability in Large-Scale Machine Learning Research Clusters, arXiv:2410.21680, HPCA
2025) report about 6.5 failures in 1,000 days of a node with eight GPUs for the larger of two
clusters and about a third of that for the other; the 419 unexpected interruptions in 54 days of
2,048 such nodes in the training of Llama 3 (2024) would be 264 days. A prior, no more."""

_PHASES = 64
"""Points at which the moment of death within an interval is looked at."""

_BACK_AT_MOST = 200
"""Checkpoints looked back over: with as many unsafe ones in a row the figure means nothing."""

_SETTLING = 24
"""Checkpoints before the one that counts, for the queue to reach its length."""


class Lifetime(msgspec.Struct, frozen=True):
    """A boot of the machine during which a mount ran, and whether it ended without order."""

    begin_s: float
    seen_s: float
    failed: bool


class Rate(msgspec.Struct, frozen=True):
    """Mean time between failures, in seconds, and where it is from."""

    mtbf_s: float
    origin: str


def failure_rate(configured_s: float | None, lifetimes: Sequence[Lifetime], nodes: int = 1) -> Rate:
    """The mean time between failures of a job on so many nodes.

    From the configuration, or else from history with `NODE_MTBF_S` as a prior that counts as one
    failure: (exposure + prior) / (failures + 1), the mean of a gamma posterior's inverse rate.
    """
    if configured_s is not None:
        return Rate(configured_s / nodes, "configured")
    exposure = sum(life.seen_s - life.begin_s for life in lifetimes)
    failures = sum(life.failed for life in lifetimes)
    mtbf = (exposure + NODE_MTBF_S) / (failures + 1)
    seen = f"{failures} failures in {exposure / 86400:.1f} days seen here, and a prior of 150 days"
    return Rate(mtbf / nodes, seen)


@dataclass(frozen=True, slots=True)
class Saving:
    """How a job saves: each `interval_s`, the program waits `save_s`; `lag` is time to safety."""

    interval_s: float
    save_s: float
    lag: Curve


class Loss(msgspec.Struct, frozen=True):
    """Seconds of work lost with a death at a random moment."""

    mean_s: float
    deviation_s: float
    q95_s: float

    def interval_of_mean(self, deaths: int, z: float = 1.96) -> tuple[float, float]:
        """Where the mean of so many deaths lies in 95 of 100 cases (central limit)."""
        half = z * self.deviation_s / math.sqrt(deaths)
        return self.mean_s - half, self.mean_s + half


def lost_work(saving: Saving) -> Loss:
    """The distribution of what is lost, for lags that are independent of each other. Exact but for
    the grid of moments.
    """
    points = sorted(_masses(saving))
    total = sum(mass for _, mass in points)
    mean = sum(lost * mass for lost, mass in points) / total
    square = sum(lost * lost * mass for lost, mass in points) / total
    below, q95 = 0.0, points[-1][0]
    for lost, mass in points:
        below += mass
        if below >= 0.95 * total:
            q95 = lost
            break
    return Loss(mean, math.sqrt(max(square - mean * mean, 0.0)), q95)


def _masses(saving: Saving) -> Iterator[tuple[float, float]]:
    for i in range(_PHASES):
        age, unsafe = (i + 0.5) / _PHASES * saving.interval_s, 1.0
        for _ in range(_BACK_AT_MOST):
            safe = saving.lag.cdf(age - saving.save_s)
            yield age, unsafe * safe
            unsafe *= 1.0 - safe
            age += saving.interval_s
            if unsafe < 1e-9:
                break
        else:
            yield age, unsafe


def lost_now(ages_s: Sequence[float]) -> float | None:
    """What is lost if the node dies at once: the age of the newest safe checkpoint's save.

    `ages_s`: seconds since each safe checkpoint began to be saved; None without any.
    """
    return min(ages_s, default=None)


# --- how often to save ----------------------------------------------------------------------------


def young(save_s: float, mtbf_s: float) -> float:
    """J. W. Young, A first order approximation to the optimum checkpoint interval, CACM 1974."""
    return math.sqrt(2.0 * save_s * mtbf_s)


def daly(save_s: float, mtbf_s: float) -> float:
    """J. T. Daly, A higher order estimate of the optimum checkpoint interval, FGCS 2006, eq. 37.

    Daly's interval is the time worked between two saves; here it is from the begin of one to the
    begin of the next, so `save_s` is not taken off.
    """
    if save_s >= 2.0 * mtbf_s:
        return mtbf_s + save_s
    ratio = save_s / (2.0 * mtbf_s)
    return math.sqrt(2.0 * save_s * mtbf_s) * (1.0 + math.sqrt(ratio) / 3.0 + ratio / 9.0)


class Interval(msgspec.Struct, frozen=True):
    """An interval between the begins of two saves, and the share of the time that it wastes."""

    rule: str
    interval_s: float
    wasted: float


def waste(saving: Saving, mtbf_s: float, restart_s: float, lost_mean_s: float) -> float:
    """The share of the time that goes into saving, lost work and restarts."""
    return saving.save_s / saving.interval_s + (lost_mean_s + restart_s) / mtbf_s


def simulated_deaths(saving: Saving, deaths: int, seed: int = 1) -> list[float]:
    """The work lost in so many deaths at random moments, by simulation.

    One path carries one checkpoint after the other: a lag is the time that it takes alone, and it
    begins when the one before is safe.
    """
    draw = uniforms(seed)
    return [_one_death(saving, draw) for _ in range(deaths)]


def _one_death(saving: Saving, draw: Callable[[], float]) -> float:
    back = min(_BACK_AT_MOST, _SETTLING + int(2 * saving.lag.median() / saving.interval_s))
    dies_s = (back + draw()) * saving.interval_s
    busy_until_s, newest_s = 0.0, -saving.interval_s
    for k in range(back + 1):
        settled_s = k * saving.interval_s + saving.save_s
        busy_until_s = max(busy_until_s, settled_s) + saving.lag.quantile(draw())
        if busy_until_s > dies_s:
            break
        newest_s = k * saving.interval_s
    return dies_s - newest_s


def best_interval(
    save_s: float, lag: Curve, mtbf_s: float, restart_s: float, deaths: int = 200, points: int = 28
) -> Interval:
    """The interval that wastes least, by simulation with the measured lags.

    The same random numbers at every interval, so that their noise cancels in the comparison.
    """
    low = max(save_s * 1.5, lag.median() * 0.3, 1e-3)
    high = max(20.0 * young(save_s, mtbf_s), 10.0 * low)
    tried = [low * (high / low) ** (i / (points - 1)) for i in range(points)]
    made = [
        _interval("simulated", Saving(t, save_s, lag), mtbf_s, restart_s, deaths) for t in tried
    ]
    return min(made, key=lambda interval: interval.wasted)


def intervals(
    save_s: float, lag: Curve, mtbf_s: float, restart_s: float, deaths: int = 200
) -> list[Interval]:
    """Young's, Daly's and the simulated interval, each with what it wastes in the simulation."""
    rules = {"young": young(save_s, mtbf_s), "daly": daly(save_s, mtbf_s)}
    made = [
        _interval(rule, Saving(interval_s, save_s, lag), mtbf_s, restart_s, deaths)
        for rule, interval_s in rules.items()
    ]
    return [*made, best_interval(save_s, lag, mtbf_s, restart_s, deaths)]


def _interval(rule: str, saving: Saving, mtbf_s: float, restart_s: float, deaths: int) -> Interval:
    lost = simulated_deaths(saving, deaths)
    return Interval(
        rule, saving.interval_s, waste(saving, mtbf_s, restart_s, sum(lost) / len(lost))
    )


def uniforms(seed: int) -> Callable[[], float]:
    """Numbers in (0, 1), the same for the same seed: splitmix64 (Steele, Lea and Flood 2014).

    Not the module `random`: nothing in this package may draw numbers that nobody gave it.
    """
    state = seed & _MASK

    def draw() -> float:
        nonlocal state
        state = (state + 0x9E3779B97F4A7C15) & _MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return ((z ^ (z >> 31)) + 0.5) / 2.0**64

    return draw


_MASK = (1 << 64) - 1
