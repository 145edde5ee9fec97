"""Medians, ratios and tables of the benchmarks."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.benchmarks.figures import Series, as_json, in_turns, table

PLAIN = Series("plain", 2 * 10**9, (1.0, 3.0, 2.0))
MOUNT = Series("mount", 2 * 10**9, (4.0, 4.0, 5.0))


def test_the_median_is_what_counts() -> None:
    assert PLAIN.median_s == 2.0
    assert PLAIN.bytes_per_s == 10**9
    assert MOUNT.speed_against(PLAIN) == 0.5


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_measures_take_turns_and_another_is_first_each_time(rounds: int) -> None:
    order: list[str] = []

    def measure(name: str) -> float:
        order.append(name)
        return float(len(order))

    series = in_turns({name: lambda name=name: measure(name) for name in "abc"}, rounds, 7)
    assert order == list("abc" + "bca" + "cab" + "abc" + "bca")[: 3 * rounds]
    assert [each.name for each in series] == ["a", "b", "c"]
    assert all(len(each.times_s) == rounds for each in series)
    assert series[0].times_s[0] == 1.0


def test_the_table_holds_the_last_one_against_the_others() -> None:
    head, plain, mount = table([PLAIN, MOUNT])
    assert "mount is" in head
    assert "1.00" in plain and "0.50 of it" in plain
    assert "( 0.67 to  2.00)" in plain
    assert "of it" not in mount


@settings(deadline=None)  # a busy machine is not a defect
@given(st.lists(st.floats(0.001, 1e3), min_size=1, max_size=9))
def test_what_programs_get_says_the_same(times_s: list[float]) -> None:
    series = [PLAIN, Series("mount", 10**9, tuple(times_s))]
    found = json.loads(json.dumps(as_json(series, rounds=3)))
    assert found["rounds"] == 3
    plain, mount = found["results"]
    assert mount["ratio"] == 1.0
    assert plain["ratio"] == pytest.approx(mount["bytes_per_s"] / plain["bytes_per_s"])
    assert min(times_s) <= mount["median_s"] <= max(times_s)
