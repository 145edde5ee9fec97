"""A distribution of a positive time as a table of its quantiles. Plain Python, microseconds a call.

Between two knots the logit of the probability is linear in the logarithm of the time, and beyond
the last ones it goes on with the slope of the last piece. So the tails are those of a log-logistic
distribution: they fall as a power of the time. A wait that has lasted longer than anything ever
seen is then expected to last about as long again, and not "to end this very moment".

Accuracy: with `KNOTS` knots the distribution functions of log-normal, gamma and Weibull are met
within 0.002, and quantiles between 1 and 99 % within 1 % (`tests/unit/durability/test_curve.py`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

KNOTS = 129
_EDGE = 1e-4
"""The first knot's probability; the last one's is 1 minus it. Beyond, tails are extrapolated."""

_TINY_S = 1e-18
"""Far below a nanosecond, since times per byte are kept in curves too."""
_LOGIT_LIMIT = 34.0
"""Beyond this a probability is 0 or 1 in double precision."""


def logit(p: float) -> float:
    """ln(p / (1 - p))."""
    return math.log(p) - math.log1p(-p)


def expit(x: float) -> float:
    """The inverse of `logit`."""
    if x >= 0:
        return 1.0 / (1.0 + math.exp(-x))
    grown = math.exp(x)
    return grown / (1.0 + grown)


def grid(knots: int = KNOTS) -> list[float]:
    """The probabilities of the knots: even steps of the logit."""
    edge = logit(1 - _EDGE)
    return [expit(-edge + 2 * edge * i / (knots - 1)) for i in range(knots)]


@dataclass(frozen=True, slots=True)
class Curve:
    """`times` ascending and positive, in seconds; `logits` of P(T <= time), ascending."""

    times: tuple[float, ...]
    logits: tuple[float, ...]
    _logs: tuple[float, ...] = field(default=(), repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.times) < 2 or len(self.times) != len(self.logits):
            raise ValueError("a curve has two knots or more")
        object.__setattr__(self, "_logs", tuple(math.log(time) for time in self.times))

    def cdf(self, time_s: float) -> float:
        """P(T <= time)."""
        if time_s <= 0:
            return 0.0
        x = self._logit_at(math.log(time_s))
        return 0.0 if x < -_LOGIT_LIMIT else 1.0 if x > _LOGIT_LIMIT else expit(x)

    def sf(self, time_s: float) -> float:
        """P(T > time), exact also where it is small."""
        return 1.0 if time_s <= 0 else expit(-self._logit_at(math.log(time_s)))

    def quantile(self, p: float) -> float:
        """The time by which it has happened with probability `p` (0 < p < 1)."""
        x = logit(p)
        i = min(max(bisect_right(self.logits, x), 1), len(self.logits) - 1)
        share = (x - self.logits[i - 1]) / (self.logits[i] - self.logits[i - 1])
        return math.exp(self._logs[i - 1] + share * (self._logs[i] - self._logs[i - 1]))

    def median(self) -> float:
        """The time by which it has happened in half of the cases."""
        return self.quantile(0.5)

    def mean(self) -> float:
        """The expectation, up to the last knot: a power tail may have none at all."""
        total, below = 0.0, 0.0
        for i, x in enumerate(self.logits):
            p = expit(x)
            middle = self.times[i] if i == 0 else math.sqrt(self.times[i] * self.times[i - 1])
            total += (p - below) * middle
            below = p
        return total + (1.0 - below) * self.times[-1]

    def scaled(self, factor: float) -> Curve:
        """The distribution of `factor` times T."""
        return Curve(tuple(max(time * factor, _TINY_S) for time in self.times), self.logits)

    def widened(self, factor: float) -> Curve:
        """The same median, and every other quantile so many times further from it, as a factor."""
        median = self.median()
        return Curve(
            tuple(max(median * (t / median) ** factor, _TINY_S) for t in self.times), self.logits
        )

    def after(self, elapsed_s: float) -> Curve:
        """What is left of T when it has lasted `elapsed_s` already: T - elapsed given T > elapsed.

        Knots at even probabilities of the condition, so the tail is looked at as closely as
        the middle is.
        """
        if elapsed_s <= 0:
            return self
        left = self.sf(elapsed_s)
        if left <= 0:  # in double precision; the power tail goes on
            return _lasting(elapsed_s, self._tail_slope())
        return from_quantiles(
            lambda p: self._time_of_sf(left * (1.0 - p)) - elapsed_s, grid(len(self.times))
        )

    def left_at(self, elapsed_s: float, p: float) -> float:
        """The quantile `p` of what is left after `elapsed_s`: one point of `after`, cheaply."""
        if elapsed_s <= 0:
            return self.quantile(p)
        left = self.sf(elapsed_s)
        if left <= 0:
            return _lasting(elapsed_s, self._tail_slope()).quantile(p)
        return max(self._time_of_sf(left * (1.0 - p)) - elapsed_s, 0.0)

    def _tail_slope(self) -> float:
        return (self.logits[-1] - self.logits[-2]) / (self._logs[-1] - self._logs[-2])

    def _time_of_sf(self, survival: float) -> float:
        x = math.log1p(-survival) - math.log(survival) if survival > 0 else math.inf
        i = min(max(bisect_right(self.logits, x), 1), len(self.logits) - 1)
        share = (x - self.logits[i - 1]) / (self.logits[i] - self.logits[i - 1])
        log_time = self._logs[i - 1] + share * (self._logs[i] - self._logs[i - 1])
        return math.exp(min(log_time, 700.0))

    def _logit_at(self, log_time: float) -> float:
        i = min(max(bisect_right(self._logs, log_time), 1), len(self._logs) - 1)
        share = (log_time - self._logs[i - 1]) / (self._logs[i] - self._logs[i - 1])
        return self.logits[i - 1] + share * (self.logits[i] - self.logits[i - 1])


def from_quantiles(quantile: Callable[[float], float], probabilities: Iterable[float]) -> Curve:
    """The curve through given quantiles; knots that do not ascend are left out."""
    return from_knots((max(quantile(p), 0.0), p) for p in probabilities)


def from_knots(knots: Iterable[tuple[float, float]]) -> Curve:
    """The curve through (time, probability) pairs, in ascending order.

    Knots at which time or probability hardly grows are left out. What is left may be a single
    point: it becomes a steep step there.
    """
    times: list[float] = []
    logits: list[float] = []
    for time_s, p in knots:
        if not 0.0 < p < 1.0:
            continue
        time_s, x = max(time_s, _TINY_S), logit(p)
        if times and (time_s <= times[-1] * (1 + 1e-9) or x <= logits[-1] + 1e-9):
            continue
        times.append(time_s)
        logits.append(x)
    if len(times) < 2:
        return step(times[0] if times else _TINY_S)
    return Curve(tuple(times), tuple(logits))


def step(time_s: float) -> Curve:
    """All but certain at `time_s`: within a thousandth of it."""
    at = max(time_s, _TINY_S)
    return Curve((at * 0.9995, at * 1.0005), (-9.2, 9.2))


def lognormal(median_s: float, spread: float) -> Curve:
    """The curve of a log-normal distribution; `spread` is the standard deviation of ln T."""
    return from_quantiles(lambda p: median_s * math.exp(spread * normal_quantile(p)), grid())


def _lasting(elapsed_s: float, slope: float) -> Curve:
    """What is left far out in a power tail: P(left > x) = (1 + x / elapsed) ** -slope."""
    exponent = -1.0 / max(slope, 0.1)
    return from_quantiles(
        lambda p: elapsed_s * (math.exp(min(exponent * math.log1p(-p), 600.0)) - 1.0), grid()
    )


def merged_times(curves: Sequence[Curve], at_most: int) -> list[float]:
    """The knots of all curves together, thinned evenly to at most so many."""
    times = sorted({time for curve in curves for time in curve.times})
    if len(times) <= at_most:
        return times
    stride = (len(times) - 1) / (at_most - 1)
    return [times[round(i * stride)] for i in range(at_most)]


def times_one_of(curve: Curve, factors: Sequence[float]) -> Curve:
    """The time when it is multiplied by one of these factors, each as likely as any other."""
    parts = [(curve.scaled(factor), count) for factor, count in Counter(factors).items()]
    if len(parts) == 1:
        return parts[0][0]
    times = merged_times([part for part, _ in parts], 2 * KNOTS)
    return from_knots(
        (time, sum(part.cdf(time) * count for part, count in parts) / len(factors))
        for time in times
    )


def normal_cdf(x: float) -> float:
    """The distribution function of the standard normal."""
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


def normal_quantile(p: float) -> float:
    """The inverse of `normal_cdf`.

    Rational approximation of P. J. Acklam (relative error 1.15e-9); `statistics.NormalDist` would
    do, but it brings `random` along, which nothing here may use.
    """
    if p < 0.02425:
        q = math.sqrt(-2.0 * math.log(p))
        return _ratio(q, _C, _D)
    if p > 1.0 - 0.02425:
        q = math.sqrt(-2.0 * math.log1p(-p))
        return -_ratio(q, _C, _D)
    q = p - 0.5
    return q * _ratio(q * q, _A, _B)


def _ratio(x: float, above: Sequence[float], below: Sequence[float]) -> float:
    numerator = denominator = 0.0
    for a in above:
        numerator = numerator * x + a
    for b in below:
        denominator = denominator * x + b
    return numerator / (denominator * x + 1.0)


_A = (-3.969683028665376e01, 2.209460984245205e02, -2.759285104469687e02, 1.383577518672690e02,
      -3.066479806614716e01, 2.506628277459239e00)  # fmt: skip
_B = (-5.447609879822406e01, 1.615858368580409e02, -1.556989798598866e02, 6.680131188771972e01,
      -1.328068155288572e01)  # fmt: skip
_C = (-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e00, -2.549732539343734e00,
      4.374664141464968e00, 2.938163982698783e00)  # fmt: skip
_D = (7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e00,
      3.754408661907416e00)  # fmt: skip
