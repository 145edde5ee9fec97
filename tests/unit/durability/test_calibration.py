"""Forecasts that are corrected by how earlier ones came true, on times with a known bias."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import msgspec
import pytest

from cachexfs.durability.latency.curve import lognormal
from cachexfs.durability.score import LEVELS, Score, score
from tools.experiments.predicting.calibration import WHOLE_AFTER, as_table, calibrated
from tools.experiments.predicting.held import Held

SPREAD = 0.03
"""Of the part that is forecast rightly, as a standard deviation of its logarithm."""


def simulated(count: int, *, missing_s: float, seed: int = 5) -> list[Held]:
    """Forecasts of a part that is known; the times seen have one more part, of this median."""
    rng = random.Random(seed)
    made = []
    for number in range(count):
        known_s = rng.uniform(0.2, 1.2)
        curve = lognormal(known_s, SPREAD)
        missing = missing_s * rng.lognormvariate(0.0, 1.0)
        seen_s = known_s * rng.lognormvariate(0.0, SPREAD) + missing
        quantiles = tuple(curve.quantile(p) for p in LEVELS)
        made.append(forecast(number, at_s=2.0 * number, quantiles=quantiles, seen_s=seen_s))
    return made


def forecast(number: int, at_s: float, quantiles: tuple[float, ...], seen_s: float) -> Held:
    return Held(
        profile="steady", run=0, number=number, target="returned", size_bytes=1, at_s=at_s,
        quantiles=quantiles, seen_s=seen_s, rivals={},
    )  # fmt: skip


def scored(made: Sequence[Held]) -> Score:
    return score([one.forecast() for one in made])


@pytest.mark.parametrize("seed", [5, 6, 7])
def test_a_part_that_is_in_no_forecast_is_learned(seed: int) -> None:
    made = simulated(500, missing_s=0.03, seed=seed)
    before, after = scored(made), scored(calibrated(made))
    assert before.coverage["90"] < 0.72
    assert 0.86 <= after.coverage["90"] <= 0.94
    assert 0.44 <= after.coverage["50"] <= 0.56
    assert after.mape < 0.85 * before.mape
    assert after.pinball_s < 0.85 * before.pinball_s


@pytest.mark.parametrize("seed", [5, 6, 7])
def test_what_is_honest_stays_as_it_is(seed: int) -> None:
    """No spread is counted twice: intervals neither grow nor shrink, and little is lost."""
    made = simulated(500, missing_s=0.0, seed=seed)
    after = calibrated(made)
    assert 0.86 <= scored(after).coverage["90"] <= 0.94
    assert scored(after).pinball_s < 1.05 * scored(made).pinball_s
    wide = [sum(one.quantiles[5] - one.quantiles[1] for one in each) for each in (made, after)]
    assert wide[1] == pytest.approx(wide[0], rel=0.1)


def test_nothing_is_known_of_what_has_not_ended() -> None:
    alone, late = (forecast(i, i * 1.0, (1.0,) * 7, seen_s=3.0) for i in range(2))
    after = calibrated([late, alone])
    assert after == [alone, late]  # the first was still on its way


def test_a_few_forecasts_correct_little() -> None:
    first = forecast(0, 0.0, (1.0,) * 7, seen_s=4.0)
    second = forecast(1, 5.0, (1.0,) * 7, seen_s=4.0)
    assert calibrated([first, second])[1].quantiles == pytest.approx((1 + 3 / WHOLE_AFTER,) * 7)
    assert calibrated([first, second], "ratio")[1].quantiles == pytest.approx(
        (4 ** (1 / WHOLE_AFTER),) * 7
    )


def test_quantiles_ascend_and_stay_positive() -> None:
    """Also where forecasts were far too long, and the next one is short."""
    made = [forecast(i, 10.0 * i, (1, 2, 3, 4, 5, 6, 7), seen_s=0.1) for i in range(60)]
    made.append(forecast(60, 700.0, (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7), seen_s=0.1))
    last = calibrated(made)[-1].quantiles
    assert all(0 < a <= b for a, b in itertools.pairwise(last))


def test_the_table_has_each_way_for_each_kind() -> None:
    lines = as_table(simulated(40, missing_s=0.01), ["returned"]).splitlines()
    assert [line.split(" | ")[2] for line in lines if line.startswith("| steady")] == [
        "as made",
        "by difference",
        "by ratio",
    ]


def test_what_lies_before_the_capture_is_told() -> None:
    made = [forecast(i, 10.0 * i, (1.0,) * 7, seen_s=1.25) for i in range(5)]
    made += [msgspec.structs.replace(one, target="capture", at_s=one.at_s + 0.2) for one in made]
    assert as_table(made, ["returned"]).splitlines()[-1] == (
        "- steady: until its capture begins a write takes 200.0 ms (median; 200 ms at 95 %); it "
        "returns 250.0 ms after the median forecast, 50.0 ms without that"
    )
