"""Times that are not as forecast, one after the other, before a new fit knows of them."""

from __future__ import annotations

import math

import msgspec
import pytest

from cachexfs.durability.forecast import Leg, Model
from cachexfs.durability.latency.curve import lognormal
from cachexfs.durability.latency.fit import PhaseFit
from cachexfs.durability.latency.fitting import fit_phase
from cachexfs.durability.latency.sample import MEASURED_PHASES, Sample
from cachexfs.durability.latency.surprise import BELIEVED_S, MOST, WIDER, Surprise
from tests.unit.durability.truths import FIXED, MB

SIZE = 100 * MB
USUAL_S = (FIXED + SIZE) * 2e-9


def flush(begin_s: float, times_s: float, *, censored: bool = False) -> Sample:
    return Sample(
        phase="flush", size_bytes=SIZE, begin_s=begin_s, elapsed_s=times_s, censored=censored
    )  # fmt: skip


@pytest.fixture(scope="module")
def fit() -> PhaseFit:
    """Of storage as steady as a clock: within 3 %."""
    return fit_phase([flush(10.0 * i, USUAL_S * (1 + 0.01 * (i % 5 - 2))) for i in range(100)])


def seen(fit: PhaseFit, *factors: float) -> Model:
    model = Model([fit])
    for i, factor in enumerate(factors):
        model.it_is(2000.0 + 10 * i)
        model.saw(flush(2000.0 + 10 * i, factor * USUAL_S))
    model.it_is(2000.0 + 10 * len(factors))
    return model


def test_one_surprise_is_no_news(fit: PhaseFit) -> None:
    assert seen(fit, 3.0).whole(Leg("flush", SIZE)).median() == pytest.approx(USUAL_S, rel=0.02)
    assert seen(fit, 3.0, 1.0, 3.0).whole(Leg("flush", SIZE)).median() < 1.1 * USUAL_S


@pytest.mark.parametrize("factor", [3.0, 0.3])
def test_two_in_a_row_are_believed_and_widen_the_forecast(fit: PhaseFit, factor: float) -> None:
    usual, surprised = (seen(fit, *f).whole(Leg("flush", SIZE)) for f in ((1.0,), (factor, factor)))
    assert surprised.median() == pytest.approx(factor * USUAL_S, rel=0.05)
    widths = [math.log(curve.quantile(0.95) / curve.quantile(0.05)) for curve in (usual, surprised)]
    assert widths[1] == pytest.approx(WIDER * widths[0], rel=0.05)
    assert seen(fit, factor, factor).left_at(Leg("flush", SIZE), 0.5) == pytest.approx(
        factor * USUAL_S, rel=0.05
    )


def test_the_first_that_is_as_expected_ends_it(fit: PhaseFit) -> None:
    assert seen(fit, 3.0, 3.0, 1.0).whole(Leg("flush", SIZE)).median() < 1.05 * USUAL_S


def test_it_is_followed_meanwhile(fit: PhaseFit) -> None:
    median_s = seen(fit, 2.0, 2.0, 4.0, 4.0, 4.0, 4.0).whole(Leg("flush", SIZE)).median()
    assert 3.4 * USUAL_S < median_s < 4.0 * USUAL_S


def test_stalls_are_believed_up_to_a_factor(fit: PhaseFit) -> None:
    median_s = seen(fit, 100.0, 100.0).whole(Leg("flush", SIZE)).median()
    assert median_s == pytest.approx(math.exp(MOST) * USUAL_S, rel=0.05)


def test_what_the_fit_follows_itself_is_no_surprise(fit: PhaseFit) -> None:
    following = msgspec.structs.replace(fit, gain=0.5)
    assert [one.surprise for one in seen(following, 3.0, 3.0).fits_now()] == [Surprise()] * len(
        MEASURED_PHASES
    )
    median_s = seen(following, 3.0, 3.0).whole(Leg("flush", SIZE)).median()
    assert median_s == pytest.approx(3**0.75 * USUAL_S, rel=0.05)


def test_it_is_not_believed_for_long_without_another_file(fit: PhaseFit) -> None:
    model = seen(fit, 3.0, 3.0)
    model.it_is(2020.0 + 2 * BELIEVED_S)
    assert model.whole(Leg("flush", SIZE)).median() < 1.05 * USUAL_S


def test_what_is_still_running_can_only_be_too_long() -> None:
    before = Surprise(last=1.0, at_s=5.0)
    assert before.saw(-3.0, 0.0, 6.0, censored=True) is before
    assert before.saw(1.0, 0.999, 6.0, censored=True).offset == 1.0
    assert before.saw(0.1, 0.6, 6.0) == Surprise()


def test_it_goes_along_with_the_fits(fit: PhaseFit) -> None:
    model = seen(fit, 3.0, 3.0)
    again = Model(model.fits_now())
    again.it_is(2021.0)
    assert again.whole(Leg("flush", SIZE)).median() == pytest.approx(3 * USUAL_S, rel=0.05)


def test_a_curve_is_widened_around_its_median() -> None:
    wide = lognormal(2.0, 0.1).widened(2.0)
    assert wide.median() == pytest.approx(2.0)
    assert wide.quantile(0.975) == pytest.approx(2.0 * math.exp(0.2 * 1.96), rel=0.01)
