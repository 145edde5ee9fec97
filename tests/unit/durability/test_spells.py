"""Bursts that last: which state it is, for how long that is believed, and what it is worth."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest

from cachexfs.durability.forecast import Leg, Model
from cachexfs.durability.latency.fit import PhaseFit
from cachexfs.durability.latency.fitting import fit_phase
from cachexfs.durability.latency.sample import Sample
from cachexfs.durability.latency.spells import SURE, Spells, likelihoods, slow_share, unit
from tests.unit.durability.truths import DRAWS, MB, samples

TWICE = (0.75, 0.0, 0.05, math.log(2.0), 0.1)
"""Three in four quick, at one second a byte; else twice as slow."""

SIZE = 20 * MB
QUICK_S = 1.0


def in_bursts(
    count: int, seed: int, *, lasting_s: float = 30.0, every_s: float = 3.0
) -> list[Sample]:
    """Files of one size each few seconds; a neighbour doubles their time in spells of 30 s."""
    rng = np.random.default_rng(seed)
    made, slow = [], False
    for i in range(count):
        if rng.random() < 1.0 - math.exp(-every_s / (lasting_s if slow else 2 * lasting_s)):
            slow = not slow
        took = QUICK_S * (2.0 if slow else 1.0) * math.exp(rng.normal(0.0, 0.04))
        made.append(
            Sample(phase="flush", size_bytes=SIZE, begin_s=i * every_s, elapsed_s=took)
        )  # fmt: skip
    return made


@pytest.fixture(scope="module")
def fit() -> PhaseFit:
    return fit_phase(in_bursts(400, seed=1))


def test_a_slow_file_makes_the_slow_state_likely_and_time_makes_it_forgotten() -> None:
    before = Spells(lasting_s=10.0, slow=slow_share(TWICE), at_s=0.0)
    after = before.saw(math.log(2.0), 5.0, TWICE, censored=False)
    assert after.slow == SURE and after.at_s == 5.0
    assert after.at(6.0, 0.25).slow == pytest.approx(0.25 + (SURE - 0.25) * math.exp(-0.1))
    assert after.at(500.0, 0.25).slow == pytest.approx(0.25)
    assert after.at(4.0, 0.25) is after  # nobody looks back


def test_a_file_that_is_still_running_can_only_say_slow() -> None:
    believed = Spells(10.0, 0.25, 0.0)
    assert believed.saw(0.5, 1.0, TWICE, censored=True).slow > 0.9
    assert believed.saw(-3.0, 1.0, TWICE, censored=True).slow == pytest.approx(0.25)


def test_a_time_far_from_both_states_says_something_or_nothing() -> None:
    for log_unit in (-80.0, 80.0):
        found = Spells(10.0, 0.25, 0.0).saw(log_unit, 1.0, TWICE, censored=False)
        assert 0.0 < found.slow < 1.0
    assert all(density >= 0 for density in likelihoods(1e3, TWICE, censored=False))


def test_the_curve_is_that_of_both_states_by_their_probabilities() -> None:
    assert unit(TWICE, 0.001).median() == pytest.approx(1.0, rel=0.01)
    assert unit(TWICE, 0.999).median() == pytest.approx(2.0, rel=0.01)
    even = unit(TWICE, 0.5)
    assert even.cdf(1.4) == pytest.approx(0.5, abs=0.01)
    assert even.quantile(0.95) == pytest.approx(2.0 * math.exp(0.1 * 1.2816), rel=0.01)


def test_spells_are_found_with_their_length(fit: PhaseFit) -> None:
    assert fit.family == "spells" and fit.spells is not None
    assert 6.0 <= fit.spells.lasting_s <= 60.0  # 1 / (1 / 30 + 1 / 60) = 20
    share, quick, quick_spread, slow, slow_spread = fit.parameters
    assert slow - quick == pytest.approx(math.log(2.0), abs=0.05)
    assert max(quick_spread, slow_spread) < 0.08 and 0.5 < share < 0.85


@pytest.mark.parametrize("name", DRAWS)
def test_no_spells_are_found_where_there_are_none(name: str) -> None:
    found = [fit_phase(samples(DRAWS[name], 300, seed)).family for seed in range(5)]
    assert found.count("spells") == 0, found


def test_a_model_follows_what_ends_and_forgets_with_time(fit: PhaseFit) -> None:
    model, begin_s = Model([fit]), 2000.0
    leg = Leg("flush", SIZE)
    for elapsed_s, seen in ((2.0, 2.0), (1.0, 1.0), (2.05, 2.0)):
        model.it_is(begin_s)
        model.saw(
            Sample(phase="flush", size_bytes=SIZE, begin_s=begin_s, elapsed_s=elapsed_s)
        )  # fmt: skip
        begin_s += 10.0
        assert model.whole(leg).median() == pytest.approx(seen, rel=0.05)
        assert model.left_at(leg, 0.5) == pytest.approx(seen, rel=0.05)
    assert math.exp(model.level("flush")) == pytest.approx(2.0, rel=0.1)
    model.it_is(begin_s + 3600.0)
    assert model.whole(leg).median() == pytest.approx(1.0, rel=0.1)
    assert model.whole(leg).quantile(0.95) > 1.9  # and it may be slow again by now


def test_what_is_believed_goes_along_with_the_fits(fit: PhaseFit) -> None:
    model = Model([fit])
    model.it_is(2000.0)
    model.saw(Sample(phase="flush", size_bytes=SIZE, begin_s=2000.0, elapsed_s=2.0))
    model.it_is(2003.0)
    told = msgspec.convert(msgspec.to_builtins(model.fits_now()), list[PhaseFit])
    leg = Leg("flush", SIZE)
    assert Model(told).whole(leg).median() == pytest.approx(model.whole(leg).median(), rel=0.02)


def test_in_the_long_run_bursts_come_as_often_as_they_do(fit: PhaseFit) -> None:
    model, leg = Model([fit]), Leg("flush", SIZE)
    model.it_is(2000.0)
    model.saw(Sample(phase="flush", size_bytes=SIZE, begin_s=2000.0, elapsed_s=1.0))
    model.it_is(2001.0)
    share = slow_share(fit.parameters)
    assert 0.15 < share < 0.5
    assert model.whole(leg).cdf(1.5) > 0.9
    assert model.in_the_long_run().whole(leg).cdf(1.5) == pytest.approx(1 - share, abs=0.02)


def test_half_the_error_under_bursts_and_honest_intervals() -> None:
    """400 forecasts one step ahead, not used for fitting; against the mean of the past."""
    series = in_bursts(600, seed=2)
    model = Model([fit_phase(series[:200])])
    errors, naive, inside = [], [], 0
    mean_s = float(np.mean([one.elapsed_s for one in series[:200]]))
    for sample in series[200:]:
        model.it_is(sample.begin_s)
        curve = model.whole(Leg("flush", SIZE))
        errors.append(abs(curve.median() - sample.elapsed_s) / sample.elapsed_s)
        naive.append(abs(mean_s - sample.elapsed_s) / sample.elapsed_s)
        inside += curve.quantile(0.05) <= sample.elapsed_s <= curve.quantile(0.95)
        model.saw(sample)
    assert np.mean(errors) < 0.5 * np.mean(naive)
    assert 0.85 <= inside / len(errors) <= 0.96
