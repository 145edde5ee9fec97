"""The families of distributions, each fitted by maximum likelihood with right-censoring. scipy.

A family is fitted to weighted positive numbers of which some are censored: of those only the
survival function is known to have reached that far. The mixture is fitted by EM (Dempster, Laird
and Rubin 1977), with the moments of a truncated normal in the place of what was not seen (Tobin
1958); the others by minimising the negative log-likelihood.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import optimize, special, stats

Array = npt.NDArray[np.float64]

SPREAD_FLOOR = 0.01
"""Smallest standard deviation of a logarithm: without it a component collapses onto one sample."""

SPREAD_CEILING = 2.5
"""And the largest, a factor of 150 between the median and 97.5 %: where nearly all is censored, the
likelihood would go on growing with it."""

_EM_ROUNDS = 300
_EM_ENOUGH = 1e-7


@dataclass(frozen=True, slots=True)
class Observed:
    """Positive numbers, which of them are censored (True: it is larger), and their weights."""

    values: Array
    censored: npt.NDArray[np.bool_]
    weights: Array

    @classmethod
    def of(
        cls,
        values: Sequence[float] | Array,
        censored: Sequence[bool] | npt.NDArray[np.bool_] | None = None,
        weights: Sequence[float] | Array | None = None,
    ) -> Observed:
        """From sequences; nothing censored and all weights 1 where nothing else is said."""
        size = len(values)
        return cls(
            np.maximum(np.asarray(values, dtype=float), 1e-300),
            np.zeros(size, bool) if censored is None else np.asarray(censored, bool),
            np.ones(size) if weights is None else np.asarray(weights, dtype=float),
        )


@dataclass(frozen=True, slots=True)
class Fitted:
    """One family with its parameters; functions of arrays of positive numbers."""

    family: str
    parameters: tuple[float, ...]
    log_likelihood: float

    def logpdf(self, x: Array) -> Array:
        """The logarithm of the density."""
        return FAMILIES[self.family].logpdf(x, self.parameters)

    def sf(self, x: Array) -> Array:
        """P(X > x)."""
        return np.exp(FAMILIES[self.family].logsf(x, self.parameters))

    def cdf(self, x: Array) -> Array:
        """P(X <= x)."""
        return 1.0 - self.sf(x)

    def quantile(self, p: float) -> float:
        """The inverse of `cdf`."""
        return FAMILIES[self.family].quantile(p, self.parameters)

    def bic(self, weight: float) -> float:
        """Schwarz 1978: less is better. `weight` is the number of samples, by weight."""
        return len(self.parameters) * math.log(max(weight, 2.0)) - 2.0 * self.log_likelihood


@dataclass(frozen=True, slots=True)
class Family:
    """A family: its functions, and how it is fitted."""

    logpdf: Callable[[Array, tuple[float, ...]], Array]
    logsf: Callable[[Array, tuple[float, ...]], Array]
    quantile: Callable[[float, tuple[float, ...]], float]
    fit: Callable[[Observed], tuple[float, ...]]


def fit(family: str, observed: Observed) -> Fitted:
    """Fit one family. Parameters as in `FAMILIES`."""
    parameters = FAMILIES[family].fit(observed)
    return Fitted(family, parameters, log_likelihood(family, parameters, observed))


def log_likelihood(family: str, parameters: tuple[float, ...], observed: Observed) -> float:
    """The weighted log-likelihood, with the survival function where a value is censored."""
    made = FAMILIES[family]
    terms = np.where(
        observed.censored,
        made.logsf(observed.values, parameters),
        made.logpdf(observed.values, parameters),
    )
    total = float(np.sum(observed.weights * terms))
    return total if math.isfinite(total) else -1e300


# --- log-normal: mean and standard deviation of the logarithm -------------------------------------


def _lognormal_logpdf(x: Array, p: tuple[float, ...]) -> Array:
    z = (np.log(x) - p[0]) / p[1]
    return np.asarray(-0.5 * z * z - np.log(x) - math.log(p[1] * math.sqrt(2 * math.pi)))


def _lognormal_logsf(x: Array, p: tuple[float, ...]) -> Array:
    return np.asarray(special.log_ndtr(-(np.log(x) - p[0]) / p[1]))


def _lognormal_quantile(q: float, p: tuple[float, ...]) -> float:
    return math.exp(p[0] + p[1] * float(special.ndtri(q)))


def _fit_lognormal(observed: Observed) -> tuple[float, ...]:
    mixture = _em(observed, np.ones((len(observed.values), 1)))
    return (mixture[1], mixture[2])


# --- gamma and Weibull: shape and scale -----------------------------------------------------------


def _gamma_logpdf(x: Array, p: tuple[float, ...]) -> Array:
    return np.asarray(stats.gamma.logpdf(x, p[0], scale=p[1]))


def _gamma_logsf(x: Array, p: tuple[float, ...]) -> Array:
    return np.asarray(np.log(np.maximum(special.gammaincc(p[0], x / p[1]), 1e-300)))


def _gamma_quantile(q: float, p: tuple[float, ...]) -> float:
    return float(special.gammaincinv(p[0], q)) * p[1]


def _weibull_logpdf(x: Array, p: tuple[float, ...]) -> Array:
    z = np.log(x) - math.log(p[1])
    return np.asarray(math.log(p[0]) + p[0] * z - np.log(x) - np.exp(p[0] * z))


def _weibull_logsf(x: Array, p: tuple[float, ...]) -> Array:
    return np.asarray(-np.exp(p[0] * (np.log(x) - math.log(p[1]))))


def _weibull_quantile(q: float, p: tuple[float, ...]) -> float:
    return float(p[1] * (-math.log1p(-q)) ** (1.0 / p[0]))


def _fit_shape_and_scale(family: str, observed: Observed) -> tuple[float, ...]:
    """From where the log-normal would be: its median as scale, its spread for the shape."""
    center, spread = _fit_lognormal(observed)
    shape = min(max(1.0 / (spread * spread), 0.05), 1e4)
    if family == "weibull":
        start = [math.log(1.28 / spread), center + 0.4 * spread]  # sd of ln X is 1.28 / shape
    else:
        start = [math.log(shape), center - math.log(shape)]

    def loss(theta: Array) -> float:
        shape, scale = (math.exp(min(max(float(value), -690.0), 690.0)) for value in theta)
        with np.errstate(all="ignore"):
            return -log_likelihood(family, (shape, scale), observed)

    found = optimize.minimize(
        loss, np.array(start), method="Nelder-Mead",
        options={"xatol": 1e-4, "fatol": 1e-6, "maxiter": 400},
    )  # fmt: skip
    return tuple(math.exp(float(value)) for value in found.x)


# --- a mixture of two log-normals: weight, mean, spread of the first; mean, spread of the second --


def _mixture_parts(x: Array, p: tuple[float, ...], part: Callable[..., Array]) -> Array:
    first = part(x, p[1:3]) + math.log(max(p[0], 1e-300))
    second = part(x, p[3:5]) + math.log(max(1.0 - p[0], 1e-300))
    return np.asarray(np.logaddexp(first, second))


def _mixture_logpdf(x: Array, p: tuple[float, ...]) -> Array:
    return _mixture_parts(x, p, _lognormal_logpdf)


def _mixture_logsf(x: Array, p: tuple[float, ...]) -> Array:
    return _mixture_parts(x, p, _lognormal_logsf)


def _mixture_quantile(q: float, p: tuple[float, ...]) -> float:
    """By bisection between the components' own quantiles, where it must lie."""
    ends = sorted(p[1 + 2 * i] + p[2 + 2 * i] * float(special.ndtri(q)) for i in (0, 1))

    def excess(log_x: float) -> float:
        first = float(special.ndtr((log_x - p[1]) / p[2]))
        second = float(special.ndtr((log_x - p[3]) / p[4]))
        return p[0] * first + (1.0 - p[0]) * second - q

    low, high = ends[0] - 1e-9, ends[1] + 1e-9
    if excess(low) >= 0 or excess(high) <= 0:
        return math.exp(low if excess(low) >= 0 else high)
    return math.exp(float(optimize.brentq(excess, low, high, xtol=1e-10)))


def _fit_mixture(observed: Observed) -> tuple[float, ...]:
    """The best of several starts: split at the median, at 80 % and at 95 % of the values."""
    best, best_likelihood = None, -math.inf
    for share in (0.5, 0.8, 0.95):
        border = float(np.quantile(observed.values, share))
        is_low = (observed.values <= border).astype(float)
        found = _em(observed, np.column_stack([is_low, 1.0 - is_low]))
        likelihood = log_likelihood("mixture", found, observed)
        if likelihood > best_likelihood:
            best, best_likelihood = found, likelihood
    assert best is not None
    return best


def _em(observed: Observed, shares: Array) -> tuple[float, ...]:
    """EM for one or two log-normals; `shares`: (n, components), who each value belongs to.

    Returns weight, mean, spread of the first, and mean, spread of the second if there are two.
    """
    y, w = np.log(observed.values), observed.weights
    held, spread0 = shares, max(float(np.std(y)), SPREAD_FLOOR)
    center = np.array([_mean(y, w * held[:, k], float(np.mean(y))) for k in range(held.shape[1])])
    spread = np.full(held.shape[1], spread0)
    mass = np.full(held.shape[1], 1.0 / held.shape[1])
    last = -math.inf
    for _ in range(_EM_ROUNDS):
        center, spread, mass = _m_step(y, observed.censored, w, held, center, spread)
        held, likelihood = _e_step(y, observed.censored, w, center, spread, mass)
        if likelihood - last < _EM_ENOUGH * (1.0 + abs(likelihood)):
            break
        last = likelihood
    numbers = [float(mass[0])]
    for k in np.argsort(center):
        numbers += [float(center[k]), float(spread[k])]
    if len(center) == 2 and center[0] > center[1]:
        numbers[0] = float(mass[1])
    return tuple(numbers)


def _m_step(
    y: Array, censored: npt.NDArray[np.bool_], w: Array, held: Array, center: Array, spread: Array
) -> tuple[Array, Array, Array]:
    new_center, new_spread, mass = center.copy(), spread.copy(), np.empty(len(center))
    for k in range(len(center)):
        first, second = _moments(y, censored, center[k], spread[k])
        weight = w * held[:, k]
        total = float(np.sum(weight))
        mass[k] = total
        if total < 1e-9:
            continue
        new_center[k] = float(np.sum(weight * first)) / total
        variance = float(np.sum(weight * second)) / total - new_center[k] ** 2
        new_spread[k] = min(max(math.sqrt(max(variance, 0.0)), SPREAD_FLOOR), SPREAD_CEILING)
    return new_center, new_spread, mass / max(float(np.sum(mass)), 1e-12)


def _moments(
    y: Array, censored: npt.NDArray[np.bool_], center: float, spread: float
) -> tuple[Array, Array]:
    """E[Y], E[Y squared]; of a censored one given that Y > y (inverse Mills ratio)."""
    z = (y - center) / spread
    mills = np.exp(-0.5 * z * z - math.log(math.sqrt(2 * math.pi)) - special.log_ndtr(-z))
    beyond = center + spread * mills
    beyond_squared = center**2 + spread**2 + spread * (y + center) * mills
    return np.where(censored, beyond, y), np.where(censored, beyond_squared, y * y)


def _e_step(
    y: Array, censored: npt.NDArray[np.bool_], w: Array, center: Array, spread: Array, mass: Array
) -> tuple[Array, float]:
    z = (y[:, None] - center) / spread
    density = -0.5 * z * z - np.log(spread * math.sqrt(2 * math.pi))
    terms = np.where(censored[:, None], special.log_ndtr(-z), density)
    terms = terms + np.log(np.maximum(mass, 1e-300))
    total = special.logsumexp(terms, axis=1)
    return np.exp(terms - total[:, None]), float(np.sum(w * total))


def _mean(y: Array, weight: Array, otherwise: float) -> float:
    total = float(np.sum(weight))
    return float(np.sum(weight * y)) / total if total > 0 else otherwise


FAMILIES: dict[str, Family] = {
    "lognormal": Family(_lognormal_logpdf, _lognormal_logsf, _lognormal_quantile, _fit_lognormal),
    "gamma": Family(
        _gamma_logpdf, _gamma_logsf, _gamma_quantile, lambda o: _fit_shape_and_scale("gamma", o)
    ),
    "weibull": Family(
        _weibull_logpdf, _weibull_logsf, _weibull_quantile,
        lambda o: _fit_shape_and_scale("weibull", o),
    ),
    "mixture": Family(_mixture_logpdf, _mixture_logsf, _mixture_quantile, _fit_mixture),
}  # fmt: skip
"""Name -> family. Parameters: `lognormal` mean and spread of the logarithm; `gamma`, `weibull`
shape and scale; `mixture` weight, mean and spread of the faster component, mean and spread of the
slower one."""
