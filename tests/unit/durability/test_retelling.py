"""A run told again, from made-up results: writes that wait in their opening for other flushes."""

from __future__ import annotations

import random

import pytest

from cachexfs.durability.latency.curve import lognormal
from cachexfs.durability.score import LEVELS, score
from tools.experiments.predicting.held import Held
from tools.experiments.predicting.retelling import (
    Timeline,
    Told,
    as_table,
    corrected,
    mapped,
    retold,
)

MIB = 1 << 20


def held(target: str, number: int, at_s: float, seen_s: float, forecast_s: float) -> Held:
    curve = lognormal(forecast_s, 0.05)
    return Held(
        profile="steady", run=0, number=number, target=target, size_bytes=8 * MIB + number,
        at_s=at_s, quantiles=tuple(curve.quantile(p) for p in LEVELS), seen_s=seen_s, rivals={},
    )  # fmt: skip


def run(count: int = 60) -> list[Held]:
    """0.1 s until the capture, where nothing else is flushed; 0.5 s where the last one still is.

    Then 10 ms of capture, 0.3 s to the peer and 1 s to the storage. Nobody forecast the opening.
    """
    rng, made, at_s = random.Random(1), list[Held](), 1000.0
    for number in range(count):
        is_busy = number % 2 == 1
        opening, capture, replicate, flush, commit = (
            median * rng.lognormvariate(0.0, 0.05)
            for median in (0.5 if is_busy else 0.1, 0.01, 0.3, 1.0, 0.02)
        )
        begun = at_s + opening
        settled = begun + capture
        made += [
            held("returned", number, at_s, settled + replicate - at_s, 0.31),
            held("capture", number, begun, capture, 0.01),
            held("replicate", number, settled, replicate, 0.3),
            held("flush", number, settled, flush, 1.0),
            held("commit", number, settled + flush, commit, 0.02),
        ]
        at_s = settled + 0.5 if number % 2 == 0 else settled + 3.0
    return made


@pytest.fixture(scope="module")
def told() -> dict[str, dict[str, list[Told]]]:
    return retold(run())


def test_the_opening_is_found_and_the_whole_write_is_forecast_with_it(
    told: dict[str, dict[str, list[Told]]],
) -> None:
    made = {
        how: score([one.forecast("returned") for one in each[30:]])
        for how, each in told["returned"].items()
    }
    assert made["as made"].mape > 0.2 and made["as made"].coverage["95"] < 0.1
    assert made["anew"].mape < 0.12
    assert made["and corrected"].pinball_s < 0.3 * made["as made"].pinball_s
    openings = told["opening"]["anew"]
    assert len(openings) == 60
    medians = [one.curve.median() for one in openings[30:]]
    assert max(medians[::2]) < 0.6 * min(medians[1::2])  # by what is in flush


def test_every_phase_and_every_target_has_its_rows() -> None:
    rows, _, by_load = as_table(run(30)).partition("\n\n")
    assert {tuple(line.split(" | ")[1:3]) for line in rows.splitlines()[2:]} == {
        *((phase, how) for phase in ("capture", "replicate", "flush", "commit")
          for how in ("as made", "anew")),
        ("opening", "anew"),
        *((whole, how) for whole in ("settled to durable", "returned")
          for how in ("as made", "anew", "and corrected", "or mapped")),
    }  # fmt: skip
    assert [line.split(" ms (")[1] for line in by_load.splitlines()[:2]] == ["median of 15)"] * 2


def test_a_file_is_not_under_way_when_its_own_way_begins() -> None:
    first, second = held("flush", 0, 10.0, 4.0, 1.0), held("flush", 1, 11.0, 4.0, 1.0)
    opening = held("capture", 1, 10.5, 0.1, 0.1)
    timeline = Timeline({("steady", 0, 0): {"flush": first},
                         ("steady", 0, 1): {"flush": second, "capture": opening}})  # fmt: skip
    assert timeline.at(10.0).unflushed_bytes == 0
    assert timeline.at(11.0).unflushed_bytes == timeline.at(10.5).unflushed_bytes == 8 * MIB
    assert timeline.behind("flush", 10.0) == pytest.approx(6 * MIB, rel=0.01)


def test_only_what_had_ended_corrects() -> None:
    """All are under way at once: none can know of another."""
    many = [Told("steady", 0.001 * i, lognormal(1.0, 0.1), 9.0) for i in range(100)]
    assert corrected(many) == many == mapped(many)


def test_a_map_of_probabilities_moves_a_forecast_too() -> None:
    many = [Told("steady", 10.0 * i, lognormal(1.0, 0.5), 1.5) for i in range(60)]
    assert mapped(many)[-1].curve.median() == pytest.approx(1.5, rel=0.05)
