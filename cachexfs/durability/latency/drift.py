"""Which samples count: recent ones more, and those from before a change of regime hardly. numpy.

Storage does not stay what it was: a job next door begins, a link is replaced. Two things answer
that. Every sample's weight halves each `HALF_LIFE` newer samples. And a change of regime is looked
for: the split of the series at which the means of its two parts differ most, held against what
chance would give. The statistic is the likelihood ratio of one normal mean against two (Hawkins
1977), of normal scores of the ranks and not of the values, so a heavy tail or two modes do not pass
for a change; and it is divided by what autocorrelation adds to the variance of a mean, so neither
do bursts that come and go.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import special, stats

Array = npt.NDArray[np.float64]

HALF_LIFE = 400.0
"""Newer samples after which one counts half: some days of hourly saves of eight shards."""

NEW_AT_LEAST = 12
"""A regime needs as many samples before it is believed: fewer do not fix a median."""

SIGNIFICANT = 22.0
"""Of the likelihood ratio, twice the logarithm. The largest of 2,000 splits of a stationary series
exceeds 22 in less than one case of a thousand (simulated; a single split: chi-square, 3e-6)."""

OLD_REGIME = 0.03
"""What a sample of an older regime still counts: enough to lend the new one the shape of its
tail while it has few samples, and no more."""


def weights(residuals: Array) -> tuple[Array, int]:
    """Weights of a series in the order of time, and the index where the present regime begins.

    `residuals`: ln of time over work, which should be alike if nothing changed.
    """
    size = len(residuals)
    ages = np.arange(size - 1, -1, -1, dtype=float)
    recency = np.asarray(0.5 ** (ages / HALF_LIFE), dtype=float)
    begin = regime_begin(residuals)
    recency[:begin] *= OLD_REGIME
    return recency, begin


def regime_begin(series: Array) -> int:
    """Where the newest regime begins; 0 when no change is found."""
    begin = 0
    while True:
        split = _split(series[begin:])
        if split is None:
            return begin
        begin += split


def _split(series: Array) -> int | None:
    """The most likely change of a series, if it is significant."""
    size = len(series)
    if size < 2 * NEW_AT_LEAST:
        return None
    scores = _normal_scores(series)
    sums = np.cumsum(scores)[:-1]
    n = np.arange(1, size)
    gap = (sums - n * float(np.sum(scores)) / size) ** 2 / (n * (1.0 - n / size))
    gap[: NEW_AT_LEAST - 1] = 0.0
    gap[size - NEW_AT_LEAST :] = 0.0
    at = int(np.argmax(gap)) + 1
    return at if gap[at - 1] / _inflation(scores, at) > SIGNIFICANT else None


def _normal_scores(series: Array) -> Array:
    """Blom 1958."""
    ranks = stats.rankdata(series)
    return np.asarray(special.ndtri((ranks - 0.375) / (len(series) + 0.25)))


def _inflation(scores: Array, at: int) -> float:
    """The variance of what is left around the two means, times what autocorrelation adds to it.

    (1 + r) / (1 - r) for a first-order autoregression with lag-one correlation r.
    """
    left = scores - np.where(np.arange(len(scores)) < at, scores[:at].mean(), scores[at:].mean())
    variance = max(float(np.mean(left * left)), 1e-6)
    r = float(np.mean(left[1:] * left[:-1])) / variance
    r = min(max(r, 0.0), 0.95)
    return variance * (1.0 + r) / (1.0 - r)
