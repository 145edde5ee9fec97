"""Forecasts of whole ways, corrected by how earlier ones came true. Pure; plain Python.

    q'(p) = q(p) + share x Q_p(seen - q(p), of earlier forecasts)

Phases are fitted; a way is composed of them, and what lies between two phases, or ties them
together, is in no fit. So each quantile is moved by that quantile of what earlier forecasts missed:
conformalized quantile regression (Romano, Patterson, Candès 2019) with one-sided scores, each with
the rank that n samples ask of the next one, p (n + 1) / n. The aim is that of the recalibration of
Kuleshov, Fenner and Ermon (2018), which maps probabilities; differences were better by the pinball
loss on what real mounts measured (docs/durability.md), since a part that is missing is beyond all
that a narrow forecast has probabilities for.

Which earlier ones count:

- Newer ones more: weights that fall with age bound what a drift can cost (Barber, Candès, Ramdas,
  Tibshirani 2023).
- Those of about as long a time more (localized, Guan 2023): a second that large files miss is not
  added to small ones.
- Too few count for nothing: with fewer than `FEW` nothing is changed, with `ENOUGH` all of it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from cachexfs.durability.latency.curve import Curve, expit, from_knots, logit
from cachexfs.durability.score import LEVELS

HALVES_AFTER = 60
"""Outcomes after which an older one weighs half."""

REMEMBERED = 400
"""Outcomes that are kept of each kind: older ones would weigh less than a hundredth."""

FEW, ENOUGH = 10.0, 40.0
"""Outcomes, by their weights (Kish 1965): from one number to the other a correction grows from
nothing to whole. 40 have one beyond each end of a 95 % interval."""

STEP = math.log(1.5)
"""Forecasts are told apart by the logarithm of their median, in such steps."""

NEAR = math.log(2.0)
"""Standard deviation of the weight by nearness: at twice the time one counts 0.6, at ten times
nothing."""

LEAST = 0.1
"""A quantile keeps at least so much of what it was: times are positive."""

_MEDIAN = LEVELS.index(0.5)
_LOGITS = tuple(logit(p) for p in LEVELS)

Quantiles = tuple[float, ...]
"""At `score.LEVELS`, seconds."""


class Outcome(NamedTuple):
    """What had been forecast, before any correction, and what was seen."""

    quantiles: Quantiles
    seen_s: float


class Correction(msgspec.Struct, frozen=True):
    """By how many seconds to move each quantile, for medians near `exp(step x STEP)` seconds."""

    shifts: dict[int, Quantiles] = {}

    def of(self, curve: Curve, share: float = 1.0, whole_s: float | None = None) -> Curve:
        """A forecast, corrected. `share`: as far as the way is still to be gone.

        `whole_s`: the median of the whole way, where `curve` is what is left of it.
        """
        shifts = self._near(curve.median() if whole_s is None else whole_s)
        if shifts is None:
            return curve
        latest, knots = 0.0, []
        for time_s, x in zip(curve.times, curve.logits, strict=True):
            latest = max(latest, _moved(time_s, share * _at(x, shifts)))
            knots.append((latest, expit(x)))
        return from_knots(knots)

    def of_median(self, median_s: float, share: float, whole_s: float) -> float:
        """The same of a median alone, in a microsecond."""
        shifts = self._near(whole_s)
        return median_s if shifts is None else _moved(median_s, share * shifts[_MEDIAN])

    def _near(self, median_s: float) -> Quantiles | None:
        return self.shifts.get(_step(median_s)) if self.shifts else None


NONE = Correction()
"""Nothing is known yet."""


def learned(outcomes: Sequence[Outcome]) -> Correction:
    """The correction that outcomes teach; the oldest first."""
    kept = outcomes[-REMEMBERED:]
    if len(kept) < FEW:
        return NONE
    logs = [math.log(max(one.quantiles[_MEDIAN], 1e-9)) for one in kept]
    ages = [0.5 ** ((len(kept) - 1 - i) / HALVES_AFTER) for i in range(len(kept))]
    misses = [
        sorted((one.seen_s - one.quantiles[i], n) for n, one in enumerate(kept))
        for i in range(len(LEVELS))
    ]
    shifts = {}
    for step in sorted({_step(math.exp(log)) + by for log in logs for by in (-1, 0, 1)}):
        weights = [
            age * math.exp(-0.5 * ((log - step * STEP) / NEAR) ** 2)
            for age, log in zip(ages, logs, strict=True)
        ]
        if found := _shifts(misses, weights):
            shifts[step] = found
    return Correction(shifts)


def _shifts(
    misses: Sequence[Sequence[tuple[float, int]]], weights: Sequence[float]
) -> Quantiles | None:
    """None where too few are near."""
    total = sum(weights)
    count = total * total / max(sum(weight * weight for weight in weights), 1e-300)
    share = min((count - FEW) / (ENOUGH - FEW), 1.0)
    if share <= 0.0:
        return None
    return tuple(
        share * _quantile(of_level, weights, 0.5 + (p - 0.5) * (1.0 + 1.0 / count), total)
        for of_level, p in zip(misses, LEVELS, strict=True)
    )


def _quantile(
    ascending: Iterable[tuple[float, int]], weights: Sequence[float], p: float, total: float
) -> float:
    """A weighted quantile; between two values on the straight line from one to the other."""
    below, before, before_p = 0.0, 0.0, -1.0
    for value, n in ascending:
        middle = (below + weights[n] / 2) / total
        below += weights[n]
        if middle >= p:
            if before_p < 0.0 or middle <= before_p:
                return value
            return before + (value - before) * (p - before_p) / (middle - before_p)
        before, before_p = value, middle
    return before


def _step(median_s: float) -> int:
    return round(math.log(max(median_s, 1e-9)) / STEP)


def _moved(time_s: float, by_s: float) -> float:
    return max(time_s + by_s, LEAST * time_s)


def _at(x: float, shifts: Quantiles) -> float:
    """The shift at a logit: straight lines between the levels, the last ones beyond them."""
    i = bisect_right(_LOGITS, x)
    if i in (0, len(_LOGITS)):
        return shifts[min(i, len(_LOGITS) - 1)]
    part = (x - _LOGITS[i - 1]) / (_LOGITS[i] - _LOGITS[i - 1])
    return shifts[i - 1] + part * (shifts[i] - shifts[i - 1])
