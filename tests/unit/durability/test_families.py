"""Each family is found again in samples of known parameters, also when some are censored."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachexfs.durability.latency.families import (
    FAMILIES,
    Array,
    Fitted,
    Observed,
    fit,
    log_likelihood,
)
from cachexfs.durability.latency.fitting import choose

SIZE = 1500

TRUTHS: dict[str, tuple[float, ...]] = {
    "lognormal": (-1.0, 0.7),
    "gamma": (3.0, 0.5),
    "weibull": (1.6, 2.0),
    "mixture": (0.7, -1.0, 0.3, 1.5, 0.5),
}


def draws(family: str, size: int, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    p = TRUTHS[family]
    if family == "lognormal":
        return np.exp(rng.normal(p[0], p[1], size))
    if family == "gamma":
        return rng.gamma(p[0], p[1], size)
    if family == "weibull":
        return p[1] * rng.weibull(p[0], size)
    slow = rng.random(size) > p[0]
    return np.exp(np.where(slow, rng.normal(p[3], p[4], size), rng.normal(p[1], p[2], size)))


def censored_at_random(values: Array, seed: int) -> Observed:
    """About a third are given up before they end, at a moment that has nothing to do with them."""
    limits = np.random.default_rng(seed).exponential(2.2 * float(np.mean(values)), len(values))
    return Observed.of(np.minimum(values, limits), values > limits)


@pytest.mark.parametrize("family", TRUTHS)
@pytest.mark.parametrize("is_censored", [False, True], ids=["seen", "censored"])
def test_the_parameters_are_found_again(family: str, is_censored: bool) -> None:
    values = draws(family, SIZE, seed=7)
    observed = censored_at_random(values, seed=8) if is_censored else Observed.of(values)
    assert is_censored == (observed.censored.mean() > 0.2)
    found = fit(family, observed)
    assert found.parameters == pytest.approx(TRUTHS[family], rel=0.12, abs=0.07)
    truth = log_likelihood(family, TRUTHS[family], observed)
    assert truth - 0.01 <= found.log_likelihood <= truth + 10


@pytest.mark.parametrize("family", TRUTHS)
def test_leaving_out_what_did_not_end_would_be_wrong(family: str) -> None:
    """What is lost by it: the median of those seen is well below the one that is fitted."""
    values = draws(family, SIZE, seed=9)
    observed = censored_at_random(values, seed=10)
    naive = float(np.median(observed.values[~observed.censored]))
    truth = float(np.median(values))
    found = fit(family, observed).quantile(0.5)
    assert abs(found - truth) < 0.08 * truth
    assert abs(naive - truth) > 2 * abs(found - truth)


@pytest.mark.parametrize("family", TRUTHS)
def test_the_criterion_chooses_the_true_family(family: str) -> None:
    chosen, bics = choose(Observed.of(draws(family, SIZE, seed=11)))
    assert chosen.family == family, bics
    assert set(bics) == set(FAMILIES)


def test_weights_count_as_repetition() -> None:
    values = draws("gamma", 200, seed=12)
    twice = fit("gamma", Observed.of(np.concatenate([values, values])))
    weighed = fit("gamma", Observed.of(values, weights=np.full(200, 2.0)))
    assert weighed.parameters == pytest.approx(twice.parameters, rel=1e-3)


def test_equal_samples_and_one_sample_can_be_fitted() -> None:
    for values in (np.full(50, 0.3), np.array([0.3])):
        for family in FAMILIES:
            assert fit(family, Observed.of(values)).quantile(0.5) == pytest.approx(0.3, rel=0.05)


_spread = st.floats(0.05, 3.0)
_center = st.floats(-5.0, 5.0)
_PARAMETERS = {
    "lognormal": st.tuples(_center, _spread),
    "gamma": st.tuples(st.floats(0.2, 50.0), st.floats(0.01, 10.0)),
    "weibull": st.tuples(st.floats(0.3, 20.0), st.floats(0.01, 10.0)),
    "mixture": st.tuples(st.floats(0.02, 0.98), _center, _spread, _center, _spread),
}


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_distribution_functions_are_ones(family: str, data: st.DataObject) -> None:
    fitted = Fitted(family, data.draw(_PARAMETERS[family]), 0.0)
    p = data.draw(st.floats(0.001, 0.999))
    assert float(fitted.cdf(np.array([fitted.quantile(p)]))[0]) == pytest.approx(p, abs=1e-5)
    times = np.geomspace(fitted.quantile(0.001), fitted.quantile(0.999) * 1.001, 50)
    cdf = fitted.cdf(times)
    assert (np.diff(cdf) >= -1e-12).all() and (cdf >= 0).all() and (cdf <= 1).all()
    assert fitted.sf(times) == pytest.approx(1 - cdf, abs=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_density_is_the_slope(family: str) -> None:
    fitted = Fitted(family, TRUTHS[family], 0.0)
    x = np.array([fitted.quantile(p) for p in (0.05, 0.3, 0.5, 0.9)])
    slope = (fitted.cdf(x * (1 + 1e-5)) - fitted.cdf(x * (1 - 1e-5))) / (2e-5 * x)
    assert np.exp(fitted.logpdf(x)) == pytest.approx(slope, rel=1e-3)
    assert math.isfinite(log_likelihood(family, TRUTHS[family], Observed.of(x)))
