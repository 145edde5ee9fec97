"""Which bytes count: the fixed cost and the shares of the load, by maximum likelihood. scipy.

For this step alone the logarithm of the time per byte of work is taken to be normal. Location and
work are then found consistently whatever the true family is (it is least squares of the logarithm,
with censoring), and the families are fitted to what is left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import optimize, special

from cachexfs.durability.latency.prior import Prior
from cachexfs.durability.latency.sample import Sample, Work

Array = npt.NDArray[np.float64]

_FIXED_SPREAD = 3.0
"""Spread of the prior of ln(fixed bytes): a factor of 400 either way. It decides only where all
files are of one size, when fixed cost and rate cannot be told apart."""

_SHARE_SPREAD = 0.35
"""Spread of the priors of the three shares, around the phase's own and around 0."""

_SHARE_MAX = 3.0


def fit_work(samples: Sequence[Sample], weights: Array, prior: Prior) -> Work:
    """The work that explains the times best. One sample or more."""
    columns = _Columns(samples, weights)
    center = math.log(prior.work.fixed_bytes)
    start_log_unit = columns.log_unit(math.exp(center), prior.ahead_share, 0.0, 0.0)
    spread = max(float(np.std(start_log_unit)), 0.05)
    start = [center, prior.ahead_share, 0.0, 0.0, float(np.mean(start_log_unit)), math.log(spread)]

    def loss(theta: Array) -> float:
        log_fixed, ahead, beside, behind, location, log_spread = (float(value) for value in theta)
        doubt = ((log_fixed - center) / _FIXED_SPREAD) ** 2
        for share in (ahead - prior.ahead_share, beside, behind):
            doubt += (share / _SHARE_SPREAD) ** 2
        log_unit = columns.log_unit(math.exp(log_fixed), ahead, beside, behind)
        return 0.5 * doubt - columns.log_likelihood(log_unit, location, math.exp(log_spread))

    found = optimize.minimize(
        loss, np.array(start), method="Nelder-Mead", bounds=_bounds(start),
        options={"initial_simplex": _simplex(start), "xatol": 1e-3, "fatol": 1e-4, "maxiter": 1200},
    )  # fmt: skip
    log_fixed, *shares = (float(value) for value in found.x[:4])
    return Work(math.exp(log_fixed), *shares)


class _Columns:
    """The samples as arrays."""

    def __init__(self, samples: Sequence[Sample], weights: Array) -> None:
        self.log_times = np.log(np.maximum([s.elapsed_s for s in samples], 1e-9))
        self.sizes = np.array([float(s.moved_bytes) for s in samples])
        self.ahead = np.array([float(s.ahead_bytes) for s in samples])
        self.beside = np.array([float(s.beside_bytes) for s in samples])
        self.behind = np.array([float(s.behind_bytes) for s in samples])
        self.censored = np.array([s.censored for s in samples])
        self.weights = weights

    def log_unit(self, fixed: float, ahead: float, beside: float, behind: float) -> Array:
        """ln of time per byte of work."""
        work = fixed + self.sizes + ahead * self.ahead + beside * self.beside
        work += behind * self.behind
        return np.asarray(self.log_times - np.log(work))

    def log_likelihood(self, log_unit: Array, location: float, spread: float) -> float:
        z = (log_unit - location) / spread
        seen = -0.5 * z * z - math.log(spread)
        if self.censored.any():
            seen = np.where(self.censored, special.log_ndtr(-z), seen)
        return float(np.sum(self.weights * seen))


def _bounds(start: list[float]) -> list[tuple[float, float]]:
    return [
        (start[0] - 12.0, start[0] + 12.0),
        (0.0, _SHARE_MAX),
        (0.0, _SHARE_MAX),
        (0.0, _SHARE_MAX),
        (start[4] - 20.0, start[4] + 20.0),
        (math.log(0.005), math.log(10.0)),
    ]


def _simplex(start: list[float]) -> Array:
    steps = (1.5, 0.3, 0.3, 0.3, 0.5, 0.4)
    corners = [list(start) for _ in range(len(start) + 1)]
    for i, by in enumerate(steps):
        corners[i + 1][i] += by
    return np.array(corners)
