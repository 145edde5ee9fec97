"""From the samples of a phase to its fit. numpy and scipy: never in the mount's event loop."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import msgspec
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
from cachexfs.durability.latency.sample import MEASURED_PHASES, Sample, Work
from cachexfs.durability.latency.spells import Spells, likelihoods, slow_share

Array = npt.NDArray[np.float64]

GAINS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7)

WORTH_FOLLOWING = 0.97
"""The level is followed only where that makes the error at least 3 % smaller: less is noise."""

OWN_FIT_AT_LEAST = 20
"""Samples that a source (a peer) needs for a fit of its own; with fewer it has that of all."""

MIXTURE_AT_LEAST = 30.0
"""Five parameters are not asked of fewer samples, whatever the criterion would say."""

LASTING_S = (2.0, 6.0, 20.0, 60.0, 200.0, 600.0, 3600.0)
"""Time constants of the two states that are tried: from some shards to some checkpoints."""

WORTH_SPELLS = 6.0
"""By how much the criterion has to be better with two states that last: strong evidence (Kass and
Raftery 1995)."""

LATER_POINTS = 10
LATER_MATTERS = 1.02
"""Below a fiftieth what came later is left out, so that most fits are spared the computation."""

CENSORED_AT_MOST = 1.0
"""Censored samples count at most for so many times those that ended, together. They are not
independent: a thousand files that wait behind a stuck one are one piece of evidence."""

PAIRS_AT_LEAST = 20

SAME_BEGIN_S = 0.02
"""Two phases of one size that begin so close together are of one file."""

_WorkOf = Callable[[Sample], float]


def fit_all(samples: Sequence[Sample]) -> list[PhaseFit]:
    """A fit for every phase that was measured, and for every source with enough samples."""
    fits, scored = [], dict[str, _Scored]()
    for phase in MEASURED_PHASES:
        of_phase = [sample for sample in samples if sample.phase == phase]
        if of_phase:
            fit, scored[phase] = _fit_scored(of_phase)
            fits.append(fit)
        sources = sorted({sample.source for sample in of_phase})
        for source in sources if len(sources) > 1 else ():
            own = [sample for sample in of_phase if sample.source == source]
            if len(own) >= OWN_FIT_AT_LEAST:
                fits.append(fit_phase(own, source))
    correlated = beside(scored.get("replicate", ()), scored.get("flush", ()))
    return [
        msgspec.structs.replace(fit, beside=correlated) if fit.phase == "flush" else fit
        for fit in fits
    ]


def fit_phase(samples: Sequence[Sample], source: str = "") -> PhaseFit:
    """Fit the samples of one phase. Without any that ended: the prior."""
    return _fit_scored(samples, source)[0]


_Scored = Sequence[tuple[Sample, float]]
"""Samples with the probability of what was seen or less, as it was forecast."""


def _fit_scored(samples: Sequence[Sample], source: str = "") -> tuple[PhaseFit, _Scored]:
    ordered = sorted(samples, key=lambda sample: sample.begin_s)
    phase = ordered[0].phase
    if all(sample.censored for sample in ordered):
        return prior_fit(phase), ()
    residuals = _log_units(ordered, PRIORS[phase].work.of)
    weights, _ = drift.weights(residuals)
    work = fit_work(ordered, _tempered(ordered, weights), PRIORS[phase])
    log_units = _log_units(ordered, work.of)
    weights, begin = drift.weights(log_units)
    weights = _tempered(ordered, weights)
    shape = _steady_or_in_bursts(ordered, log_units, weights, phase)
    made = PhaseFit(
        phase=phase,
        source=source,
        family=shape.family,
        parameters=shape.parameters,
        work=work,
        unit_times=tuple(shape.fitted.quantile(p) for p in grid()),
        gain=shape.gain,
        level=shape.level,
        together=together(ordered, shape.shares),
        samples=len(ordered),
        censored=sum(sample.censored for sample in ordered),
        weight=float(np.sum(weights)),
        since_s=ordered[begin].begin_s if begin else 0.0,
        bic=shape.bics,
        spells=shape.spells,
        later=_later(ordered, work, weights),
        usual_load=_usual_load(ordered, work, weights),
    )
    return made, list(zip(ordered, map(float, shape.shares), strict=True))


def beside(replicated: _Scored, flushed: _Scored) -> float:
    """Correlation of the normal scores of files whose replication and flush began together."""
    begun: dict[tuple[int, int], float] = {}
    for sample, share in replicated:
        if not sample.censored:
            begun[sample.size_bytes, round(sample.begin_s / SAME_BEGIN_S)] = share
    pairs = []
    for sample, share in flushed:
        at = round(sample.begin_s / SAME_BEGIN_S)
        found = [begun.get((sample.size_bytes, near)) for near in (at, at - 1, at + 1)]
        known = next((one for one in found if one is not None), None)
        if known is not None and not sample.censored:
            pairs.append((known, share))
    if len(pairs) < PAIRS_AT_LEAST:
        return 0.0
    products = [_score(one) * _score(other) for one, other in pairs]
    return min(max(sum(products) / len(products), 0.0), 0.95)


def _score(share: float) -> float:
    return normal_quantile(min(max(share, 1e-6), 1 - 1e-6))


def _later(samples: Sequence[Sample], work: Work, weights: Array) -> tuple[float, ...]:
    """Quantiles of the factor by which what came later made the work of a file more."""
    factors = np.array(
        [
            work.of(s) / work.bytes_of(s.moved_bytes, s.ahead_bytes, s.beside_bytes)
            for s in samples
        ]
    )  # fmt: skip
    found = _equally_likely(factors, weights)
    return tuple(1.0 if factor < LATER_MATTERS else factor for factor in found)


def _usual_load(samples: Sequence[Sample], work: Work, weights: Array) -> tuple[float, ...]:
    """Quantiles of the work that the load at the begin of a file added, in bytes."""
    loads = [work.of_load(sample.ahead_bytes, sample.beside_bytes) for sample in samples]
    return _equally_likely(np.array(loads), weights)


def _equally_likely(values: Array, weights: Array) -> tuple[float, ...]:
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    points = (np.arange(LATER_POINTS) + 0.5) / LATER_POINTS * total[-1]
    return tuple(float(value) for value in values[order][np.searchsorted(total, points)])


@dataclass(frozen=True)
class _Shape:
    """How the time per byte of work is distributed, and what it follows.

    `shares`: for each sample, the probability of what was seen or less, as it was forecast.
    """

    family: str
    fitted: Fitted
    shares: Array
    bics: dict[str, float]
    gain: float = 0.0
    level: float = 0.0
    spells: Spells | None = None

    @property
    def parameters(self) -> tuple[float, ...]:
        return self.fitted.parameters


def _steady_or_in_bursts(
    samples: Sequence[Sample], log_units: Array, weights: Array, phase: str
) -> _Shape:
    """With a level that is followed, or with two states that last: whichever forecasts better."""
    steady, log_score = _with_level(samples, log_units, weights, phase)
    weight = float(np.sum(weights))
    if weight < MIXTURE_AT_LEAST:
        return steady
    count = len(steady.parameters) + (steady.gain > 0)
    steady_bic = count * math.log(weight) - 2.0 * log_score
    mixture = fit("mixture", _with_prior(samples, np.exp(log_units), weights, phase))
    found = in_spells(samples, log_units, weights, mixture)
    bic = (len(mixture.parameters) + 1) * math.log(weight) - 2.0 * found.log_score
    bics = {**steady.bics, "spells": steady.bics[steady.family] + bic - steady_bic}
    if bic > steady_bic - WORTH_SPELLS:
        return replace(steady, bics=bics)
    return _Shape("spells", mixture, found.shares, bics, spells=found.spells)


def _with_level(
    samples: Sequence[Sample], log_units: Array, weights: Array, phase: str
) -> tuple[_Shape, float]:
    """The best family with the best gain, and its log-likelihood, one sample ahead."""
    center = _median(log_units, weights)
    gain = _best_gain(samples, log_units - center, weights)
    before, level = levels(samples, log_units - center, gain)
    units = np.exp(log_units - before)
    fitted, bics = choose(_with_prior(samples, units, weights, phase))
    censored = np.array([sample.censored for sample in samples])
    terms = np.where(
        censored,
        np.log(np.maximum(fitted.sf(units), 1e-300)),
        fitted.logpdf(units) + np.log(units),  # of the logarithm, so levels can be compared
    )
    shape = _Shape(fitted.family, fitted, fitted.cdf(units), bics, gain, level)
    return shape, float(np.sum(weights * terms))


class _InSpells(NamedTuple):
    """`log_score`: weighted log-likelihood of each sample, forecast from those that ended."""

    spells: Spells
    log_score: float
    shares: Array


def in_spells(
    samples: Sequence[Sample], log_units: Array, weights: Array, mixture: Fitted
) -> _InSpells:
    """The best of `LASTING_S`, with what is believed after the last sample."""
    tried = [_filtered(samples, log_units, weights, mixture, each) for each in LASTING_S]
    return max(tried, key=lambda one: one.log_score)


def _filtered(
    samples: Sequence[Sample], log_units: Array, weights: Array, mixture: Fitted, lasting_s: float
) -> _InSpells:
    parameters, share = mixture.parameters, slow_share(mixture.parameters)
    state = Spells(lasting_s, share, samples[0].begin_s)
    slow, under_way = np.zeros(len(samples)), list[tuple[float, int]]()

    def end(state: Spells, i: int, end_s: float) -> Spells:
        before = state.at(samples[i].begin_s, share)
        return before.saw(float(log_units[i]), end_s, parameters, samples[i].censored)

    for i, sample in enumerate(samples):
        while under_way and under_way[0][0] <= sample.begin_s:
            end_s, ended = heapq.heappop(under_way)
            state = end(state, ended, end_s)
        slow[i] = state.at(sample.begin_s, share).slow
        heapq.heappush(under_way, (sample.begin_s + sample.elapsed_s, i))
    while under_way:
        end_s, ended = heapq.heappop(under_way)
        state = end(state, ended, end_s)
    both = np.array(
        [likelihoods(float(log_units[i]), parameters, s.censored) for i, s in enumerate(samples)]
    )
    terms = np.log(np.maximum((1.0 - slow) * both[:, 0] + slow * both[:, 1], 1e-300))
    longer = np.array([likelihoods(float(y), parameters, True) for y in log_units])
    shares = 1.0 - (1.0 - slow) * longer[:, 0] - slow * longer[:, 1]
    return _InSpells(state, float(np.sum(weights * terms)), shares)


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


def together(samples: Sequence[Sample], shares: Array) -> float:
    """Correlation of the normal scores of neighbours that were under way at the same time."""
    share = np.clip(shares, 1e-6, 1 - 1e-6)
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
