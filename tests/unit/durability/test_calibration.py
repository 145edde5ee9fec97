"""The correction of whole ways: on predictors that are wrong in a known way."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Sequence

import pytest

from cachexfs.durability import calibration
from cachexfs.durability.calibration import ENOUGH, FEW, NONE, Outcome, learned
from cachexfs.durability.forecast import Leg, Model, Way
from cachexfs.durability.latency.curve import Curve, lognormal
from cachexfs.durability.paths import Traffic, offers
from cachexfs.durability.score import LEVELS, Forecast, Score, score
from cachexfs.durability.writing import JOURNEYS, WRITES, foreseen, way_of

MB = 1_000_000

Draw = Callable[[random.Random, int], tuple[Curve, float]]
"""The number of a file -> what is forecast of it, and what is seen."""


def missing(share: float = 0.0, add_s: float = 0.03) -> Draw:
    """A known part, and one that is in no forecast."""

    def draw(rng: random.Random, number: int) -> tuple[Curve, float]:
        known_s = rng.uniform(0.2, 1.2)
        extra_s = add_s * rng.lognormvariate(0.0, 1.0) + share * known_s
        return lognormal(known_s, 0.03), known_s * rng.lognormvariate(0.0, 0.03) + extra_s

    return draw


def too_narrow(rng: random.Random, number: int) -> tuple[Curve, float]:
    return lognormal(1.0, 0.1), rng.lognormvariate(0.0, 0.4)


def too_wide(rng: random.Random, number: int) -> tuple[Curve, float]:
    return lognormal(1.0, 0.8), rng.lognormvariate(0.0, 0.2)


def honest(rng: random.Random, number: int) -> tuple[Curve, float]:
    known_s = rng.uniform(0.2, 1.2)
    return lognormal(known_s, 0.3), known_s * rng.lognormvariate(0.0, 0.3)


def held(draw: Draw, count: int, seed: int) -> tuple[list[Forecast], list[Forecast]]:
    """Forecasts as composed and as corrected by those before them; the first are for learning."""
    rng, outcomes, made = random.Random(seed), list[Outcome](), list[tuple[Forecast, Forecast]]()
    for number in range(count):
        curve, seen_s = draw(rng, number)
        if number % 5 == 0:
            correction = learned(outcomes)
        pair = (curve, correction.of(curve))
        one, other = (
            Forecast("safe", number, tuple(each.quantile(p) for p in LEVELS), seen_s)
            for each in pair
        )
        made.append((one, other))
        outcomes.append(Outcome(one.quantiles, seen_s))
    kept = made[100:]
    return [one for one, _ in kept], [other for _, other in kept]


def scored(draw: Draw, seed: int, count: int = 600) -> tuple[Score, Score]:
    before, after = held(draw, count, seed)
    return score(before), score(after)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("draw", [missing(), too_narrow, too_wide])
def test_who_is_wrong_in_a_known_way_becomes_honest(draw: Draw, seed: int) -> None:
    before, after = scored(draw, seed)
    assert abs(before.coverage["90"] - 0.9) > 0.06
    assert after.coverage["90"] == pytest.approx(0.9, abs=0.045)
    assert after.coverage["50"] == pytest.approx(0.5, abs=0.07)
    assert after.pinball_s < before.pinball_s


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_who_is_honest_stays_so(seed: int) -> None:
    before, after = scored(honest, seed)
    assert after.coverage["90"] == pytest.approx(before.coverage["90"], abs=0.04)
    assert after.pinball_s < 1.04 * before.pinball_s
    assert after.mape < 1.04 * before.mape


def outcomes(count: int, missed_s: float, median_s: float = 1.0) -> list[Outcome]:
    curve = lognormal(median_s, 0.1)
    quantiles = tuple(curve.quantile(p) for p in LEVELS)
    return [Outcome(quantiles, median_s + missed_s) for _ in range(count)]


def test_a_few_change_nothing_and_the_next_ones_by_degrees() -> None:
    curve = lognormal(1.0, 0.1)
    assert learned(outcomes(int(FEW), 1.0)).of(curve) == curve
    medians = [learned(outcomes(n, 1.0)).of(curve).median() for n in (15, 25, int(ENOUGH) + 5)]
    assert 1.0 < medians[0] < medians[1] < medians[2] == pytest.approx(2.0, rel=0.02)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_drift_is_followed(seed: int) -> None:
    """What is missing grows ten times: some 60 files later the intervals are honest again."""

    def drifting(rng: random.Random, number: int) -> tuple[Curve, float]:
        return missing(add_s=0.03 if number < 300 else 0.3)(rng, number)

    before, after = held(drifting, 700, seed)
    at_once = score(after[200:230])
    later = score(after[300:])
    assert at_once.coverage["90"] < 0.75
    assert later.coverage["90"] == pytest.approx(0.9, abs=0.05)
    assert later.pinball_s < 0.5 * score(before[300:]).pinball_s


def test_what_large_files_miss_is_not_added_to_small_ones() -> None:
    both = [*outcomes(100, 0.5, median_s=10.0), *outcomes(100, 0.0, median_s=0.01)]
    made = learned(both)
    assert made.of(lognormal(0.01, 0.1)).median() == pytest.approx(0.01, rel=0.01)
    assert made.of(lognormal(10.0, 0.1)).median() == pytest.approx(10.5, rel=0.01)
    assert made.of(lognormal(0.3, 0.1)) == lognormal(0.3, 0.1)  # of such nothing is known


def test_quantiles_ascend_and_stay_positive() -> None:
    """Also where forecasts were far too long."""
    made = learned(outcomes(100, -0.9)).of(lognormal(1.0, 0.1))
    assert all(0 < a < b for a, b in itertools.pairwise(made.times))
    assert all(a < b for a, b in itertools.pairwise(made.logits))


def test_what_is_left_is_corrected_for_the_part_that_is_left() -> None:
    correction = learned(outcomes(100, 0.4))
    left = lognormal(0.25, 0.1)
    assert correction.of(left, 0.25, 1.0).median() == pytest.approx(0.35, rel=0.01)
    assert correction.of_median(0.25, 0.25, 1.0) == pytest.approx(0.35, rel=0.01)
    assert NONE.of(left) == left and NONE.of_median(0.25, 0.25, 1.0) == 0.25


def test_the_oldest_are_forgotten() -> None:
    old, new = outcomes(calibration.REMEMBERED, 5.0), outcomes(calibration.REMEMBERED, 0.0)
    assert learned([*old, *new]) == learned(new)


def test_it_takes_little_time() -> None:
    rng = random.Random(1)
    many = [one for _ in range(400) for one in outcomes(1, 0.1, rng.lognormvariate(0.0, 2.0))]
    begin_s = time.process_time()
    correction = learned(many)
    assert time.process_time() - begin_s < 1.0
    assert len(correction.shifts) > 10


# --- where it is used -----------------------------------------------------------------------------


def corrected(by_s: float, *kinds: str) -> Model:
    everywhere = dict.fromkeys(range(-60, 60), (by_s,) * len(LEVELS))
    return Model((), {kind: calibration.Correction(everywhere) for kind in kinds})


def legs(elapsed_s: float) -> Way:
    return Way(
        1, (Leg("replicate", 50 * MB, elapsed_s),), Leg("flush", 50 * MB, elapsed_s),
        Leg("commit", 50 * MB, ahead_bytes=None),
    )  # fmt: skip


def test_the_times_of_a_file_are_corrected_as_far_as_its_way_goes() -> None:
    plain, made = Model(), corrected(3.0, *JOURNEYS)
    for elapsed_s in (0.0, 0.02):
        way = legs(elapsed_s)
        before, after = plain.outlook(way), made.outlook(way)
        for to in JOURNEYS:
            gap_s = getattr(after, to).median() - getattr(before, to).median()
            assert 1.0 < gap_s < 3.1
        etas = made.eta_replicated_s(way), made.eta_durable_s(way)
        assert etas[0] == pytest.approx(after.replicated.median(), rel=0.02)
        assert etas[1] == pytest.approx(after.durable.median(), rel=0.1)
    last = Way(1, commit=Leg("commit", 50 * MB))
    assert made.outlook(last) == plain.outlook(last)
    assert made.eta_durable_s(last) == plain.eta_durable_s(last)


def test_a_path_that_misses_more_promises_less() -> None:
    traffic = Traffic((("peer", 0),), 0)

    def promised(model: Model) -> dict[str, float]:
        return {one.path: one.safe_s for one in offers(model, 50 * MB, traffic, 1, 0.95)}

    before, after = promised(Model()), promised(corrected(3.0, "durable"))
    assert after["direct"] == pytest.approx(before["direct"] + 3.0, rel=0.02)
    assert after["replica"] == before["replica"]
    assert before["both"] <= after["both"] <= after["replica"]


def test_a_whole_write_has_its_own_correction() -> None:
    traffic = Traffic((("peer", 0),), 0)
    before = foreseen(Model(), 50 * MB, traffic, 1)
    after = foreseen(corrected(3.0, *WRITES.values()), 50 * MB, traffic, 1)
    for to in JOURNEYS:
        gap_s = getattr(after, to).median() - getattr(before, to).median()
        assert gap_s == pytest.approx(3.0, rel=0.05)
    way = Model().composed(way_of(50 * MB, traffic, 1))
    assert before.safe is not None and way.safe is not None
    assert before.safe.median() > way.safe.median()


def test_a_write_that_goes_one_way_only() -> None:
    traffic: Traffic = Traffic((("peer", 0),), 0)
    direct = foreseen(Model(), 50 * MB, traffic, 1, "direct")
    assert direct.replicated is None and direct.safe == direct.durable is not None
    replica = foreseen(Model(), 50 * MB, traffic, 1, "replica")
    assert replica.safe == replica.replicated is not None
    assert replica.durable is not None
    assert replica.durable.median() > replica.replicated.median()


def ascending(values: Sequence[float]) -> bool:
    return list(values) == sorted(values)


def test_a_leg_that_begins_later_meets_the_usual_load() -> None:
    """A commit that waits behind others half of the time is not forecast as if it never did."""
    fitting = pytest.importorskip("cachexfs.durability.latency.fitting")
    from cachexfs.durability.latency.sample import Sample

    rng = random.Random(4)
    made = [
        Sample(
            phase="commit", size_bytes=20 * MB, begin_s=10.0 * i, ahead_bytes=ahead,
            elapsed_s=(400_000 + 0.5 * ahead) / 30e6 * rng.lognormvariate(0.0, 0.3),
        )
        for i in range(300)
        if (ahead := rng.choice([0, 20 * MB])) is not None
    ]  # fmt: skip
    model = Model(fitting.fit_all(made))
    alone = model.whole(Leg("commit", 20 * MB)).median()
    behind = model.whole(Leg("commit", 20 * MB, ahead_bytes=20 * MB)).median()
    later = model.whole(Leg("commit", 20 * MB, ahead_bytes=None))
    assert alone == pytest.approx(0.0133, rel=0.15) and behind == pytest.approx(0.347, rel=0.15)
    assert later.quantile(0.2) == pytest.approx(alone, rel=0.3)
    assert later.quantile(0.8) == pytest.approx(behind, rel=0.3)
    assert ascending(later.times)
