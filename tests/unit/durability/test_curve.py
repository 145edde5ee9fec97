"""The table of a distribution: as good as the distribution, also of what is left of a wait."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachexfs.durability.latency.curve import (
    Curve,
    expit,
    from_knots,
    from_quantiles,
    grid,
    logit,
    lognormal,
    normal_cdf,
    normal_quantile,
    step,
)
from cachexfs.durability.latency.families import Fitted

SHAPES = [
    Fitted("lognormal", (0.0, 0.5), 0.0),
    Fitted("lognormal", (0.0, 2.0), 0.0),
    Fitted("gamma", (0.7, 1.0), 0.0),
    Fitted("gamma", (9.0, 1.0), 0.0),
    Fitted("weibull", (0.8, 1.0), 0.0),
    Fitted("weibull", (3.0, 1.0), 0.0),
]
TWO_MODES = Fitted("mixture", (0.7, 0.0, 0.2, 2.0, 0.4), 0.0)
_ids = [f"{shape.family}{shape.parameters}" for shape in SHAPES]


def curve_of(fitted: Fitted) -> Curve:
    return from_quantiles(fitted.quantile, grid())


@pytest.mark.parametrize("fitted", SHAPES, ids=_ids)
def test_a_curve_is_as_accurate_as_it_says(fitted: Fitted) -> None:
    curve = curve_of(fitted)
    for p in np.linspace(0.01, 0.99, 99):
        t = fitted.quantile(float(p))
        assert curve.cdf(t) == pytest.approx(p, abs=0.002)
        assert curve.quantile(float(p)) == pytest.approx(t, rel=0.01)


def test_two_modes_are_kept() -> None:
    curve = curve_of(TWO_MODES)
    times = np.geomspace(0.3, 30, 200)
    seen = np.array([curve.cdf(float(t)) for t in times])
    assert float(np.abs(seen - TWO_MODES.cdf(times)).max()) < 0.02


@pytest.mark.parametrize("fitted", SHAPES, ids=_ids)
@pytest.mark.parametrize("elapsed_at", [0.1, 0.5, 0.9, 0.99])
def test_what_is_left_is_the_conditional_distribution(fitted: Fitted, elapsed_at: float) -> None:
    elapsed = fitted.quantile(elapsed_at)
    left = curve_of(fitted).after(elapsed)
    for t in np.geomspace(0.05, 3.0, 15) * fitted.quantile(0.5):
        survived = fitted.sf(np.array([elapsed + t, elapsed]))
        truth = 1 - float(survived[0] / survived[1])
        if 0.02 < truth < 0.98:
            assert left.cdf(float(t)) == pytest.approx(truth, abs=0.02)


def test_a_wait_longer_than_anything_seen_lasts_about_as_long_again() -> None:
    curve = lognormal(1.0, 0.5)
    for elapsed in (1e3, 1e6, 1e200):
        left = curve.after(elapsed).median()
        assert 0.02 * elapsed < left < elapsed


def test_the_mean() -> None:
    assert lognormal(2.0, 0.5).mean() == pytest.approx(2.0 * math.exp(0.125), rel=0.01)
    assert step(3.0).mean() == pytest.approx(3.0, rel=0.002)


def test_a_curve_scales() -> None:
    assert lognormal(2.0, 0.5).scaled(3.0).quantile(0.9) == pytest.approx(
        lognormal(6.0, 0.5).quantile(0.9)
    )


def test_few_knots_and_odd_ones() -> None:
    assert from_knots([]).cdf(1.0) > 0.999
    assert from_knots([(2.0, 0.5)]).median() == pytest.approx(2.0)
    odd = [(1.0, 0.1), (1.0, 0.2), (2.0, 0.1), (3.0, 0.9), (4.0, 1.0)]
    assert from_knots(odd).times == (1, 3)
    with pytest.raises(ValueError, match="two knots"):
        Curve((1.0,), (0.0,))


_curves = st.builds(lognormal, st.floats(1e-3, 1e3), st.floats(0.02, 3.0))


@settings(max_examples=100, deadline=None)
@given(_curves, st.floats(1e-6, 1 - 1e-6))
def test_quantile_inverts_cdf(curve: Curve, p: float) -> None:
    assert curve.cdf(curve.quantile(p)) == pytest.approx(p, rel=1e-6)
    assert curve.sf(curve.quantile(p)) == pytest.approx(1 - p, rel=1e-6)


@settings(max_examples=60, deadline=None)
@given(_curves, st.lists(st.floats(0.0, 1e5), min_size=2, max_size=20))
def test_the_distribution_function_grows(curve: Curve, times: list[float]) -> None:
    values = [curve.cdf(time) for time in sorted(times)]
    assert values == sorted(values) and values[0] >= 0 and values[-1] <= 1


@settings(max_examples=60, deadline=None)
@given(_curves, st.floats(0.01, 0.999), st.floats(0.05, 0.95))
def test_survival_splits_at_any_moment(curve: Curve, elapsed_at: float, p: float) -> None:
    """P(T > e + t) = P(T > e) P(T > e + t | T > e), within the accuracy of a curve."""
    elapsed = curve.quantile(elapsed_at)
    left = curve.after(elapsed)
    t = left.quantile(p)
    assert curve.sf(elapsed + t) == pytest.approx(curve.sf(elapsed) * left.sf(t), abs=0.004)


@given(st.floats(1e-12, 1 - 1e-12))
def test_normal_and_logistic_invert(p: float) -> None:
    assert normal_cdf(normal_quantile(p)) == pytest.approx(p, rel=1e-6, abs=1e-12)
    assert expit(logit(p)) == pytest.approx(p, rel=1e-9)
