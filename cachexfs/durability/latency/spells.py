"""Bursts: a phase has two states, and which one it is in lasts. Plain Python.

    quick ◀──────▶ slow        each a log-normal time per byte (the mixture of `families.py`)

A plain mixture throws a die for each file. Where another job writes for a minute and then is silent
for ten, the last file tells which of the two it is now: a hidden Markov chain in continuous time,
with the filter of Hamilton (1989). Between two looks the probability of the slow state goes back to
its share of all files with the time constant `lasting_s`; a file that ends moves it by Bayes' rule.
In time and not in files, because what the last shard of a checkpoint met says much about the next
shard, and nothing about the checkpoint of an hour later.
"""

from __future__ import annotations

import math

import msgspec

from cachexfs.durability.latency.curve import (
    KNOTS,
    Curve,
    from_knots,
    lognormal,
    merged_times,
    normal_cdf,
)

SURE = 0.999
"""No file makes a state more certain than that: what is called slow may have been a stall."""

Parameters = tuple[float, ...]
"""As of the family `mixture`: share of the quick, mean and spread of the logarithm of each."""


class Spells(msgspec.Struct, frozen=True):
    """What is believed at `at_s` (since the epoch): `slow` is the probability of that state."""

    lasting_s: float
    slow: float
    at_s: float

    def at(self, now_s: float, share: float) -> Spells:
        """What is believed later. `share`: of all files that met the slow state."""
        if now_s <= self.at_s:
            return self
        kept = math.exp(-(now_s - self.at_s) / self.lasting_s)
        return Spells(self.lasting_s, share + (self.slow - share) * kept, now_s)

    def saw(self, log_unit: float, end_s: float, parameters: Parameters, censored: bool) -> Spells:
        """After a file that ended, or was given up, then. `log_unit`: ln of its time per byte."""
        quick, slow = likelihoods(log_unit, parameters, censored)
        total = (1.0 - self.slow) * quick + self.slow * slow
        found = self.slow * slow / total if total > 0 else self.slow
        return Spells(
            self.lasting_s, min(max(found, 1.0 - SURE), SURE), max(end_s, self.at_s)
        )  # fmt: skip


def slow_share(parameters: Parameters) -> float:
    """The share of all files that meet the slow state."""
    return 1.0 - parameters[0]


def likelihoods(log_unit: float, parameters: Parameters, censored: bool) -> tuple[float, float]:
    """Of a time in the quick and in the slow state: densities of the logarithm, or P(it is longer).

    Both densities of one that is far from either are never 0 together.
    """
    _, quick, quick_spread, slow, slow_spread = parameters
    return (
        _likelihood(log_unit, quick, quick_spread, censored),
        _likelihood(log_unit, slow, slow_spread, censored),
    )


def _likelihood(log_unit: float, center: float, spread: float, censored: bool) -> float:
    z = (log_unit - center) / spread
    if censored:
        return normal_cdf(-z)
    return math.exp(max(-0.5 * z * z, -500.0)) / (spread * math.sqrt(2 * math.pi))


def unit(parameters: Parameters, slow: float) -> Curve:
    """The time per byte when the slow state has this probability."""
    _, quick, quick_spread, slower, slow_spread = parameters
    parts = [lognormal(math.exp(quick), quick_spread), lognormal(math.exp(slower), slow_spread)]
    return from_knots(
        (time, (1.0 - slow) * parts[0].cdf(time) + slow * parts[1].cdf(time))
        for time in merged_times(parts, 2 * KNOTS)
    )
