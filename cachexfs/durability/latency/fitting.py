"""From the samples of a phase to its fit. numpy and scipy: never in the mount's event loop."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from cachexfs.durability.latency import drift
from cachexfs.durability.latency.curve import grid, normal_quantile
from cachexfs.durability.latency.families import FAMILIES, Fitted, Observed, fit
from cachexfs.durability.latency.fit import PhaseFit, followed
from cachexfs.durability.latency.prior import (
    PRIORS,
    TOGETHER,
    prior_fit,
    prior_points,
    prior_weight,
)
from cachexfs.durability.latency.regression import fit_work
from cachexfs.durability.latency.sample import MEASURED_PHASES, Sample

Array = npt.NDArray[np.float64]

GAINS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7)

WORTH_FOLLOWING = 0.97
"""The level is followed only where that makes the error at least 3 % smaller: less is noise."""

OWN_FIT_AT_LEAST = 20
"""Samples that a source (a peer) needs for a fit of its own; with fewer it has that of all."""

MIXTURE_AT_LEAST = 30.0
"""Five parameters are not asked of fewer samples, whatever the criterion would say."""

CENSORED_AT_MOST = 1.0
"""Censored samples count at most for so many times those that ended, together. They are not
independent: a thousand files that wait behind a stuck one are one piece of evidence."""

PAIRS_AT_LEAST = 20

_WorkOf = Callable[[Sample], float]


def fit_all(samples: Sequence[Sample]) -> list[PhaseFit]:
    """A fit for every phase that was measured, and for every source with enough samples."""
    fits = []
    for phase in MEASURED_PHASES:
        of_phase = [sample for sample in samples if sample.phase == phase]
        if of_phase:
            fits.append(fit_phase(of_phase))
        sources = sorted({sample.source for sample in of_phase})
        for source in sources if len(sources) > 1 else ():
            own = [sample for sample in of_phase if sample.source == source]
            if len(own) >= OWN_FIT_AT_LEAST:
                fits.append(fit_phase(own, source))
    return fits


def fit_phase(samples: Sequence[Sample], source: str = "") -> PhaseFit:
    """Fit the samples of one phase. Without any that ended: the prior."""
    ordered = sorted(samples, key=lambda sample: sample.begin_s)
    phase = ordered[0].phase
    if all(sample.censored for sample in ordered):
        return prior_fit(phase)
    residuals = _log_units(ordered, PRIORS[phase].work.of)
    weights, _ = drift.weights(residuals)
    work = fit_work(ordered, _tempered(ordered, weights), PRIORS[phase])
    log_units = _log_units(ordered, work.of)
    weights, begin = drift.weights(log_units)
    weights = _tempered(ordered, weights)
    center = _median(log_units, weights)
    gain = _best_gain(ordered, log_units - center, weights)
    before, level = levels(ordered, log_units - center, gain)
    observed = _with_prior(ordered, np.exp(log_units - before), weights, phase)
    fitted, bics = choose(observed)
    return PhaseFit(
        phase=phase,
        source=source,
        family=fitted.family,
        parameters=fitted.parameters,
        work=work,
        unit_times=tuple(fitted.quantile(p) for p in grid()),
        gain=gain,
        level=level,
        together=together(ordered, fitted, np.exp(log_units - before)),
        samples=len(ordered),
        censored=sum(sample.censored for sample in ordered),
        weight=float(np.sum(weights)),
        since_s=ordered[begin].begin_s if begin else 0.0,
        bic=bics,
    )


def choose(observed: Observed) -> tuple[Fitted, dict[str, float]]:
    """The family with the least BIC, and the BIC of each."""
    weight = float(np.sum(observed.weights))
    fits = [fit(name, observed) for name in FAMILIES if _may_fit(name, weight)]
    bics = {fitted.family: fitted.bic(weight) for fitted in fits}
    return min(fits, key=lambda fitted: bics[fitted.family]), bics


def levels(samples: Sequence[Sample], ratios: Array, gain: float) -> tuple[Array, float]:
    """The level that each sample found when it began, and the level at the end.

    Causal: a sample moves the level when it ends, so those that began meanwhile did not know of it.
    """
    before, level = np.zeros(len(samples)), 0.0
    under_way: list[tuple[float, int]] = []
    for i, sample in enumerate(samples):
        while under_way and under_way[0][0] <= sample.begin_s:
            _, ended = heapq.heappop(under_way)
            level = _moved(samples[ended], level, gain, float(ratios[ended]))
        before[i] = level
        heapq.heappush(under_way, (sample.begin_s + sample.elapsed_s, i))
    while under_way:
        _, ended = heapq.heappop(under_way)
        level = _moved(samples[ended], level, gain, float(ratios[ended]))
    return before, level


def together(samples: Sequence[Sample], fitted: Fitted, units: Array) -> float:
    """Correlation of the normal scores of neighbours that were under way at the same time."""
    share = np.clip(fitted.cdf(units), 1e-6, 1 - 1e-6)
    pairs = [
        normal_quantile(float(share[i])) * normal_quantile(float(share[i + 1]))
        for i, (one, other) in enumerate(pairwise(samples))
        if other.begin_s < one.begin_s + one.elapsed_s
        and not (one.censored or other.censored)
    ]  # fmt: skip
    if len(pairs) < PAIRS_AT_LEAST:
        return TOGETHER
    return min(max(sum(pairs) / len(pairs), 0.0), 0.95)


def _may_fit(family: str, weight: float) -> bool:
    return family == "lognormal" or weight >= (MIXTURE_AT_LEAST if family == "mixture" else 5.0)


def _moved(sample: Sample, level: float, gain: float, ratio: float) -> float:
    return followed(level, gain, ratio, censored=sample.censored)


def _log_units(samples: Sequence[Sample], work: _WorkOf) -> Array:
    return np.array([math.log(max(s.elapsed_s, 1e-9)) - math.log(work(s)) for s in samples])


def _best_gain(samples: Sequence[Sample], ratios: Array, weights: Array) -> float:
    seen = np.array([not sample.censored for sample in samples])
    if len(samples) < OWN_FIT_AT_LEAST:
        return 0.0

    def error(gain: float) -> float:
        before, _ = levels(samples, ratios, gain)
        return float(np.sum((weights * np.abs(ratios - before))[seen]))

    errors = {gain: error(gain) for gain in GAINS}
    best = min(GAINS, key=errors.__getitem__)
    return best if errors[best] < WORTH_FOLLOWING * errors[0.0] else 0.0


def _ended(samples: Sequence[Sample]) -> int:
    return sum(not sample.censored for sample in samples)


def _tempered(samples: Sequence[Sample], weights: Array) -> Array:
    """The weights, with those of censored samples limited as a whole."""
    censored = np.array([sample.censored for sample in samples])
    seen = float(np.sum(weights[~censored])) + prior_weight(_ended(samples))
    unseen = float(np.sum(weights[censored]))
    if unseen <= CENSORED_AT_MOST * seen:
        return weights
    return np.asarray(np.where(censored, weights * CENSORED_AT_MOST * seen / unseen, weights))


def _with_prior(samples: Sequence[Sample], units: Array, weights: Array, phase: str) -> Observed:
    """The samples, and while they are few the prior as five more that share its weight."""
    censored = np.array([sample.censored for sample in samples])
    counts = prior_weight(_ended(samples))
    if counts > 0:
        points = prior_points(phase)
        units = np.concatenate([units, points])
        weights = np.concatenate([weights, np.full(len(points), counts / len(points))])
        censored = np.concatenate([censored, np.zeros(len(points), bool)])
    return Observed.of(units, censored, weights)


def _median(values: Array, weights: Array) -> float:
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(total, total[-1] / 2)])
