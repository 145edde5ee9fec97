"""The experiment about how much saves vary: its schedules, statistics, tables and page."""

from __future__ import annotations

import math
from itertools import islice
from statistics import fmean

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachexfs.errors import UsageError
from tools.experiments.varying.contention import (
    CRAWL_BITS,
    STALL_AT_MOST_S,
    STALL_S,
    STALL_SHAPE,
    schedule,
)
from tools.experiments.varying.findings import (
    Findings,
    Sample,
    as_json,
    as_markdown,
    as_text,
    verdicts,
)
from tools.experiments.varying.lanes import fast_turns, slow_turns
from tools.experiments.varying.load import Load, counters
from tools.experiments.varying.page import BEGIN, END, filled
from tools.experiments.varying.plan import PROFILES, WRITERS, Place, Plan, quick
from tools.experiments.varying.spread import Spread, cv_ratio_interval, quantile

RATE = 600_000_000

# --- schedules


@pytest.mark.parametrize("profile", PROFILES)
def test_a_schedule_comes_from_its_seed_alone(profile: str) -> None:
    def first(seed: int) -> list[object]:
        return list(islice(schedule(profile, RATE, seed), 50))  # type: ignore[arg-type]

    assert first(1) == first(1)
    assert profile == "steady" or first(1) != first(2)
    assert all(segment.lasts_s > 0 for segment in islice(schedule("bursts", RATE, 3), 500))


def test_steady_is_always_the_same() -> None:
    assert len(set(islice(schedule("steady", RATE, 1), 20))) == 1


def test_bursts_and_lulls_take_turns() -> None:
    found = list(islice(schedule("bursts", RATE, 1), 2000))
    lulls, bursts = found[::2], found[1::2]
    assert {each.writers for each in lulls} == {0} and {each.rate_bits for each in lulls} == {RATE}
    assert all(each.writers and each.rate_bits < RATE for each in bursts)
    for some in (lulls, bursts):  # exponential: the mean is 12 s, and so is the deviation
        spread = Spread.of([each.lasts_s for each in some])
        assert spread.mean_s == pytest.approx(12.0, rel=0.1) and spread.cv == pytest.approx(1, 0.1)


def test_stalls_have_a_heavy_tail_that_is_cut_off() -> None:
    stalls = [each.lasts_s for each in islice(schedule("stalls", RATE, 1), 4000)][1::2]
    assert min(stalls) >= STALL_S and max(stalls) == STALL_AT_MOST_S
    longer = sum(lasts_s > 10 for lasts_s in stalls) / len(stalls)
    assert longer == pytest.approx((STALL_S / 10) ** STALL_SHAPE, rel=0.2)
    crawl = list(islice(schedule("stalls", RATE, 1), 10))[1::2]
    assert {each.rate_bits for each in crawl} == {CRAWL_BITS}


# --- statistics


def test_the_figures_of_a_sample() -> None:
    spread = Spread.of([1.0, 2.0, 3.0, 6.0])
    assert (spread.count, spread.mean_s, spread.median_s, spread.p99_s) == (4, 3.0, 2.5, 6.0)
    assert spread.sd_s == pytest.approx(math.sqrt(14 / 3))
    assert spread.cv == spread.sd_s / 3


@given(st.lists(st.floats(0.001, 1e3), min_size=1, max_size=300), st.floats(0.01, 1.0))
def test_a_quantile_is_a_time_that_enough_do_not_exceed(times: list[float], at: float) -> None:
    found = quantile(times, at)
    assert found in times
    assert sum(time <= found for time in times) >= at * len(times) - 1e-6
    assert sum(time < found for time in times) < at * len(times) + 1e-6


def test_p99_of_a_hundred_is_not_the_largest() -> None:
    assert quantile([float(number) for number in range(100)], 0.99) == 98.0
    assert quantile([float(number) for number in range(99)], 0.99) == 98.0


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000))
def test_the_interval_of_a_ratio_has_the_ratio_in_it(seed: int) -> None:
    above = [1 + 0.2 * math.sin(number * 1.7 + seed) for number in range(30)]
    below = [1 + 0.1 * math.cos(number * 2.3 + seed) for number in range(30)]
    least, most = cv_ratio_interval(above, below)
    assert least < Spread.of(above).cv / Spread.of(below).cv < most
    assert (least, most) == cv_ratio_interval(above, below)


def test_what_never_varies_has_a_ratio_too() -> None:
    least, most = cv_ratio_interval([1.0, 1.0, 1.0], [1.0, 2.0, 3.0])
    assert 0 <= least <= most < 1e9


# --- findings


def sample(place: Place, took_s: float, at_s: float = 0.0) -> Sample:
    return Sample(
        profile="bursts", writer="raw", place=place, at_s=at_s, took_s=took_s, size_bytes=1 << 20
    )


def findings(captured: list[float], direct: list[float]) -> Findings:
    places: list[tuple[Place, list[float]]] = [
        ("tmpfs", [0.009, 0.009, 0.010, 0.011, 0.011]),
        ("captured", captured),
        ("direct", direct),
        ("durable", [5.0]),
    ]
    plan = Plan(profiles=("bursts",))
    return Findings(
        plan=plan,
        machine="2 cores",
        samples=[sample(place, time, 10.0 + time) for place, times in places for time in times],
        loads=[
            Load(at_s=5.0, in_mbit=1.0, out_mbit=0.0, cpu=0.5),
            Load(at_s=12.0, in_mbit=300.0, out_mbit=0.0, cpu=0.1),
        ],
    )


def test_what_was_to_hold_is_held_against_the_figures() -> None:
    good = findings([0.0095, 0.010, 0.010, 0.010, 0.0105], [1.0, 2.0, 9.0])
    assert [each.held for each in verdicts(good, "bursts", "raw")] == ["yes", "yes", "yes"]
    slow = findings([0.01, 0.01, 0.01, 0.01, 0.5], [1.0, 2.0, 9.0])
    assert [each.held for each in verdicts(slow, "bursts", "raw")][:2] == ["no", "no"]
    varying = findings([0.009, 0.02] * 20, [1.0, 2.0, 9.0])
    assert verdicts(varying, "bursts", "raw")[2].held == "no"
    one_of_many = findings([0.009, 0.009, 0.0095, 0.010, 0.0117], [1.0, 2.0, 9.0])
    assert verdicts(one_of_many, "bursts", "raw")[2].held == "open"
    assert verdicts(good, "bursts", "torch")[0].held == "no"  # nothing was measured
    few = findings([0.01, 0.01, 0.011], [1.0, 2.0, 9.0])
    assert [each.short for each in verdicts(few, "bursts", "raw")] == ["samples"]


def test_tables_name_places_and_ratios() -> None:
    found = findings([0.0095, 0.010, 0.010, 0.010, 0.0105], [1.0, 2.0, 9.0])
    markdown, text = as_markdown(found), as_text(found)
    (line,) = (line for line in markdown.splitlines() if "fsync = captured" in line)
    figures = "5 | 10.0 ms | 10.0 ms | 10.5 ms | 0.4 ms | 0.035"
    assert line == f"| mount, fsync = captured | {figures} | - | - | - | - | - | - |"
    assert "| bursts, raw | 400 | 857 |" in markdown
    assert "fsync = durable" not in markdown  # a single one has no deviation
    assert "300 of 600 Mbit/s" in markdown and "300 of 600 Mbit/s" in text
    assert text.count("  yes") == 3 and "p99 yes, deviation yes, variation yes" in markdown


def test_results_are_read_back() -> None:
    found = findings([0.01, 0.02], [1.0, 2.0])
    plain = as_json(found)
    assert plain["tables"][0]["places"]["direct"]["mean_s"] == 1.5
    assert msgspec.json.decode(msgspec.json.encode(plain), type=Findings) == found


# --- the plan, the load, the page


def test_every_place_is_measured_with_every_writer() -> None:
    slow, fast = list(slow_turns()), fast_turns()
    assert {place for place, _ in slow} == {"direct", "durable"}
    assert {place for place, _ in fast} == {"tmpfs", "captured", "copy", "replicated"}
    for turns in (slow, fast):
        counts = [[writer for _, writer in turns].count(name) for name in WRITERS]
        assert len(set(counts)) == 1
    ahead = [fast.index(("tmpfs", writer)) < fast.index(("captured", writer)) for writer in WRITERS]
    assert all(ahead) and fast.count(("tmpfs", "raw")) == fast.count(("captured", "raw"))


def test_the_time_is_shared_out() -> None:
    assert 3 * Plan().profile_s < 24 * 60
    assert quick().minutes < 4
    assert fmean([Plan(minutes=2, profiles=("steady",)).profile_s]) == pytest.approx(90)
    for wrong in ({"minutes": 1.0}, {"size_bytes": 1}, {"profiles": ()}):
        with pytest.raises(UsageError):
            Plan(**wrong)  # type: ignore[arg-type]


def test_the_bytes_of_a_device() -> None:
    text = (
        "Inter-|   Receive                    |  Transmit\n"
        " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets\n"
        "    lo:     100       1    0    0    0     0          0         0      200       1 0 0\n"
        "   pfs: 7000000      10    0    0    0     0          0         0     5000      20 0 0\n"
    )
    assert counters(text, "pfs") == (7_000_000, 5000)
    with pytest.raises(LookupError):
        counters(text, "peers")


def test_a_page_keeps_what_is_around_its_figures() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    once = filled(page, "new")
    assert once == f"before\n{BEGIN}\nnew\n{END}\nafter\n" == filled(once, "new")
    with pytest.raises(UsageError):
        filled("no marks", "new")
