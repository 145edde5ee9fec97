"""Times made of others, held against simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachexfs.durability.composition import (
    COARSE,
    earlier,
    earlier_quantile,
    of_copies,
    slowest,
    then,
)
from cachexfs.durability.forecast import Leg, Model, Way
from cachexfs.durability.latency.curve import Curve, from_quantiles, grid, lognormal, step
from cachexfs.durability.latency.families import Array, Fitted
from cachexfs.durability.latency.fitting import fit_all
from cachexfs.durability.latency.sample import Sample
from tests.unit.durability.truths import DRAWS, MB, samples

DRAWN = 200_000
FAST, SLOW = (math.log(1.0), 0.5), (math.log(1.6), 0.9)
TWO_MODES = Fitted("mixture", (0.8, 0.0, 0.3, 2.0, 0.4), 0.0)
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


def drawn(parameters: tuple[float, float], seed: int) -> Array:
    return np.exp(np.random.default_rng(seed).normal(*parameters, DRAWN))


def modes(seed: int) -> Array:
    rng = np.random.default_rng(seed)
    slow = rng.random(DRAWN) > 0.8
    return np.exp(np.where(slow, rng.normal(2.0, 0.4, DRAWN), rng.normal(0.0, 0.3, DRAWN)))


def curve(parameters: tuple[float, float]) -> Curve:
    return lognormal(math.exp(parameters[0]), parameters[1])


def worst(made: Curve, truth: Array) -> float:
    """The largest difference of the distribution functions at the truth's percentiles."""
    return max(
        abs(made.cdf(float(np.quantile(truth, p))) - p) for p in (i / 100 for i in range(2, 99))
    )


def test_one_after_the_other() -> None:
    assert worst(then(curve(FAST), curve(SLOW)), drawn(FAST, 1) + drawn(SLOW, 2)) < 0.01
    two = from_quantiles(TWO_MODES.quantile, grid())
    assert worst(then(two, curve(FAST)), modes(3) + drawn(FAST, 4)) < 0.02


def test_coarsely_is_good_enough_to_choose() -> None:
    fine, coarse = then(curve(FAST), curve(SLOW)), then(curve(FAST), curve(SLOW), COARSE)
    for p in (0.5, 0.9, 0.95):
        assert coarse.quantile(p) == pytest.approx(fine.quantile(p), rel=0.04)


def test_the_earlier_of_two() -> None:
    made, truth = earlier(curve(FAST), curve(SLOW)), np.minimum(drawn(FAST, 5), drawn(SLOW, 6))
    assert worst(made, truth) < 0.01
    for p in LEVELS:
        assert earlier_quantile(curve(FAST), curve(SLOW), p) == pytest.approx(
            made.quantile(p), rel=0.01
        )


def test_the_earlier_of_two_that_are_slow_together() -> None:
    """Correlated normals of unit spread: what is slow together saves less time than what is not."""
    rng, together = np.random.default_rng(11), 0.7
    common = rng.normal(0, 1, 200_000)
    one, other = (
        np.exp(0.5 * (together**0.5 * common + (1 - together) ** 0.5 * rng.normal(0, 1, 200_000)))
        for _ in range(2)
    )
    made = earlier(lognormal(1.0, 0.5), lognormal(1.0, 0.5), together)
    for p in (0.05, 0.5, 0.95):
        truth = float(np.quantile(np.minimum(one, other), p))
        assert made.quantile(p) == pytest.approx(truth, rel=0.02)
        assert earlier_quantile(
            lognormal(1.0, 0.5), lognormal(1.0, 0.5), p, together
        ) == pytest.approx(truth, rel=0.02)


@pytest.mark.parametrize("together", [0.0, 0.5, 0.9])
def test_the_slowest_of_eight(together: float) -> None:
    rng = np.random.default_rng(7)
    factor = rng.normal(size=(DRAWN, 1))
    scores = together**0.5 * factor + (1 - together) ** 0.5 * rng.normal(size=(DRAWN, 8))
    truth = np.exp(FAST[0] + FAST[1] * scores).max(axis=1)
    assert worst(slowest([curve(FAST)] * 8, together), truth) < 0.015


def test_the_slowest_of_different_ones() -> None:
    truth = np.maximum(drawn(FAST, 8), drawn(SLOW, 9))
    assert worst(slowest([curve(FAST), curve(SLOW)], 0.0), truth) < 0.01
    assert slowest([curve(FAST)], 0.5) == curve(FAST)


def test_one_copy_of_several_peers_is_the_one_that_is_fastest() -> None:
    assert of_copies([curve(SLOW), curve(FAST)], 1, 0.5).median() == curve(FAST).median()


def test_a_certain_time_adds_itself() -> None:
    made = then(step(10.0), curve(FAST))
    assert made.median() == pytest.approx(11.0, rel=0.01)


@settings(max_examples=15, deadline=None)
@given(st.floats(0.01, 100.0), st.floats(0.05, 2.0), st.floats(0.01, 100.0), st.floats(0.05, 2.0))
def test_orderings(a: float, a_spread: float, b: float, b_spread: float) -> None:
    """Whatever the two are: earlier <= each <= slowest <= one after the other, at any quantile."""
    one, other = lognormal(a, a_spread), lognormal(b, b_spread)
    for p in LEVELS:
        each = [one.quantile(p), other.quantile(p)]
        first, last = earlier(one, other).quantile(p), slowest([one, other], 0.3).quantile(p)
        assert first <= min(each) * 1.05
        assert last >= max(each) * 0.95
    assert then(one, other).mean() == pytest.approx(one.mean() + other.mean(), rel=0.05)


# --- a file and a checkpoint ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def model() -> Model:
    """Fitted: a peer at 0.5 s/GB, a file system at 2 s/GB (with two modes) and commits of 0.2 s."""
    peer = [
        Sample(
            phase="replicate", size_bytes=s.size_bytes, begin_s=s.begin_s,
            elapsed_s=s.elapsed_s / 4, source="peer",
        )
        for s in samples(DRAWS["lognormal"], 300, seed=20)
    ]  # fmt: skip
    flush = samples(DRAWS["mixture"], 300, seed=21)
    rng = np.random.default_rng(22)
    commit = [
        Sample(
            phase="commit", size_bytes=500 * MB, begin_s=10.0 * i,
            elapsed_s=0.2 * math.exp(rng.normal(0, 0.3)),
        )
        for i in range(300)
    ]  # fmt: skip
    return Model(fit_all([*peer, *flush, *commit]))


def way(size: int = 500 * MB, elapsed_s: float = 0.0) -> Way:
    """A file on both ways."""
    return Way(
        replicas=(Leg("replicate", size, elapsed_s, source="peer"),),
        flush=Leg("flush", size, elapsed_s),
        commit=Leg("commit", size),
    )


def test_safe_is_no_later_than_either(model: Model) -> None:
    outlook = model.outlook(way())
    assert outlook.safe and outlook.replicated and outlook.durable
    for p in LEVELS:
        assert outlook.safe.quantile(p) <= 1.01 * outlook.replicated.quantile(p)
        assert outlook.safe.quantile(p) <= 1.01 * outlook.durable.quantile(p)
    assert outlook.replicated.median() == pytest.approx(0.26, rel=0.15)
    assert outlook.durable.median() == pytest.approx(1.4, rel=0.2)


def test_what_has_elapsed_is_no_time_left(model: Model) -> None:
    """Past the fast mode of the file system, it must be in the slow one: 8 s and not 1 s."""
    begun, late = model.durable(way()), model.durable(way(elapsed_s=3.0))
    assert begun and late
    assert begun.median() < 2.0
    assert late.median() > 3.0


def test_a_checkpoint_waits_for_its_slowest_file(model: Model) -> None:
    alone, many = model.checkpoint([way()]), model.checkpoint([way()] * 8)
    mixed = model.checkpoint([way(), way(5 * MB), way(1 * MB)])
    assert alone.safe and many.safe and mixed.safe
    assert many.safe.median() > 1.1 * alone.safe.median()
    assert mixed.safe.quantile(0.5) == pytest.approx(alone.safe.quantile(0.5), rel=0.05)


def test_cheap_estimates_are_near_the_medians(model: Model) -> None:
    for elapsed_s in (0.0, 0.1, 0.5):
        one = way(elapsed_s=elapsed_s)
        outlook = model.outlook(one)
        assert outlook.replicated and outlook.durable
        assert model.eta_replicated_s(one) == pytest.approx(outlook.replicated.median(), rel=0.02)
        assert model.eta_durable_s(one) == pytest.approx(outlook.durable.median(), rel=0.1)


def test_what_is_not_on_its_way_has_no_time(model: Model) -> None:
    nowhere = Way()
    assert model.outlook(nowhere) == model.checkpoint([nowhere])
    assert model.outlook(nowhere).safe is None and model.eta_durable_s(nowhere) is None
    only = model.outlook(Way(commit=Leg("commit", MB)))
    assert only.replicated is None and only.safe == only.durable
    assert model.replicated(Way(copies_wanted=2, replicas=way().replicas)) is None


def test_the_level_follows_what_ends_after_the_fit() -> None:
    rng = np.random.default_rng(23)
    level = np.cumsum(rng.normal(0, 0.2, 300))
    made = [
        Sample(phase="flush", size_bytes=MB, begin_s=100.0 * i, elapsed_s=math.exp(level[i]))
        for i in range(300)
    ]
    model = Model(fit_all(made))
    before = model.eta_durable_s(Way(flush=Leg("flush", MB)))
    for _ in range(10):
        model.saw(Sample(phase="flush", size_bytes=MB, begin_s=0, elapsed_s=4 * made[-1].elapsed_s))
    after = model.eta_durable_s(Way(flush=Leg("flush", MB)))
    assert before and after and after / before == pytest.approx(4, rel=0.4)
