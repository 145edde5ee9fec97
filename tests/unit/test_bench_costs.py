"""What small operations cost, and how it is shown."""

from __future__ import annotations

import os

from tools.benchmarks.costs import Costs, as_json, table
from tools.benchmarks.cpu import used_s


def costs(name: str, *times_s: float) -> Costs:
    made = Costs(name)
    made.note("stat", *times_s)
    return made


def test_the_median_is_what_counts_and_rounds_add_up() -> None:
    made = costs("mount", 1e-6, 3e-6)
    made.note("stat", 5e-6)
    assert round(made.median_us("stat"), 3) == 3.0


def test_the_last_place_is_held_against_the_one_before() -> None:
    head, line = table([costs("native", 1e-6), costs("plain", 2e-6), costs("mount", 3e-6)])
    assert head.split() == ["microseconds", "native", "plain", "mount", "last", "is"]
    assert line.split() == ["stat", "1.0", "2.0", "3.0", "1.50", "of", "plain"]


def test_programs_get_the_medians_too() -> None:
    found = as_json([costs("mount", 2e-6)], rounds=3)
    assert found["rounds"] == 3
    assert round(found["results"][0]["median_us"]["stat"], 3) == 2.0


def test_the_cpu_time_of_a_process_grows_with_its_work() -> None:
    before = used_s(os.getpid())
    while used_s(os.getpid()) < before + 0.05:
        pass
