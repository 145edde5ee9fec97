"""Times that are made of others: one after the other, the earlier one, the slowest of many. Pure.

            replicate ─────────────────▶ replicated ─┐
    settled                                           ├─ earlier ──▶ safe from the node's loss
            flush ──── then ── commit ─▶ durable ────┘

    a checkpoint is as safe as its slowest file

Numeric, on the knots of the curves; the accuracy is that of a curve (`latency/curve.py`), about
0.01 in probability, which `tests/unit/durability/test_composition.py` holds against simulation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from cachexfs.durability.latency.curve import (
    KNOTS,
    Curve,
    expit,
    from_knots,
    from_quantiles,
    grid,
    logit,
    merged_times,
    normal_cdf,
    normal_quantile,
)

FINE, COARSE = 40, 28
"""Bins of each summand: 1,600 sums take two milliseconds of Python, 784 take one and
find quantiles within 4 %: enough where the event loop has to choose between two paths."""

_FACTOR_POINTS = 24
"""Equally likely values of the factor that files have in common."""


def then(first: Curve, second: Curve, bins: int = FINE) -> Curve:
    """The time of one after the other, taken to be independent."""
    later = _masses(second, bins)
    sums = sorted((a + b, p * q) for a, p in _masses(first, bins) for b, q in later)
    return from_knots(_thinned(sums))


def later(first: Curve, second: Curve) -> Curve:
    """The time of the second of two that are quick and slow together, as if they were one.

    Then each quantile is the larger of the two.
    """
    return from_quantiles(lambda p: max(first.quantile(p), second.quantile(p)), grid())


def earlier(first: Curve, second: Curve, together: float = 0.0) -> Curve:
    """The time of the first of two. `together`: correlation of their normal scores.

    Replicas and flushes of one file go to different machines; but both are slow when this node is.
    Independent, the survival functions multiply; otherwise given a common factor, as in `slowest`.
    """
    times = merged_times([first, second], KNOTS)
    return from_knots((time, 1.0 - _neither_by(time, first, second, together)) for time in times)


def earlier_quantile(first: Curve, second: Curve, p: float, together: float = 0.0) -> float:
    """One quantile of `earlier`, by bisection in the logarithm; within 0.1 %."""
    high = min(first.quantile(p), second.quantile(p))
    low = high * 1e-6
    while high > low * 1.001:
        middle = (low * high) ** 0.5
        if _neither_by(middle, first, second, together) > 1.0 - p:
            low = middle
        else:
            high = middle
    return high


def slowest(curves: Sequence[Curve], together: float) -> Curve:
    """The time of the last of many that are under way at the same time.

    `together` is the correlation of their normal scores. One common factor (Vasicek 1987): given
    the factor they are independent, so P(all <= t) is the mean over the factor of the product of
    the conditional distribution functions. 0 is independence; at 1 they would be slow together.
    """
    counted = Counter(curves)
    if len(curves) == 1:
        return curves[0]
    times = merged_times(list(counted), KNOTS)
    return from_knots((time, _all_by(time, counted, together)) for time in times)


def of_copies(curves: Sequence[Curve], wanted: int, together: float) -> Curve:
    """The time until `wanted` of several peers hold a file: the slowest of the `wanted` fastest."""
    ranked = sorted(curves, key=Curve.median)
    return slowest(ranked[:wanted], together)


def _all_by(time_s: float, counted: Counter[Curve], together: float) -> float:
    shares = [(curve.cdf(time_s), count) for curve, count in counted.items()]
    if any(share <= 0.0 for share, _ in shares):
        return 0.0
    scores = [(normal_quantile(min(share, 1 - 1e-12)), count) for share, count in shares]
    loading, rest = together**0.5, max(1.0 - together, 1e-9) ** 0.5
    total = 0.0
    for factor in _FACTOR:
        product = 1.0
        for score, count in scores:
            product *= normal_cdf((score - loading * factor) / rest) ** count
        total += product
    return total / len(_FACTOR)


def _neither_by(time_s: float, first: Curve, second: Curve, together: float) -> float:
    left = (first.sf(time_s), second.sf(time_s))
    if together <= 0.0 or min(left) <= 0.0 or max(left) >= 1.0:
        return left[0] * left[1]
    scores = [normal_quantile(min(max(share, 1e-12), 1 - 1e-12)) for share in left]
    loading, rest = together**0.5, (1.0 - together) ** 0.5
    return sum(
        normal_cdf((scores[0] - loading * factor) / rest)
        * normal_cdf((scores[1] - loading * factor) / rest)
        for factor in _FACTOR
    ) / len(_FACTOR)


def _masses(curve: Curve, bins: int) -> list[tuple[float, float]]:
    """A curve as points with masses: bins of equal width in the logit, so the tails are kept."""
    edge = logit(1 - 1e-4)
    borders = [0.0, *(expit(-edge + 2 * edge * i / (bins - 2)) for i in range(bins - 1)), 1.0]
    return [(curve.quantile((low + high) / 2), high - low) for low, high in pairwise(borders)]


def _thinned(masses: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Knots at about the probabilities of `grid()`, of many ascending points with masses."""
    wanted, below, knots = iter(grid()), 0.0, []
    border = next(wanted)
    for time_s, mass in masses:
        middle = below + mass / 2
        below += mass
        if middle >= border:
            knots.append((time_s, middle))
            border = next((p for p in wanted if p > middle), 1.0)
    return knots


_FACTOR = [normal_quantile((i + 0.5) / _FACTOR_POINTS) for i in range(_FACTOR_POINTS)]
