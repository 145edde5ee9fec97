"""What is predicted from what was seen: durations, set-ups, arrivals, what a preemption takes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazerd.model.job import Job, JobSpec, Phase
from lazerd.policy.gittins import LEVELS_GPU_S, ranks
from lazerd.predict.accuracy import Accuracy
from lazerd.predict.arrivals import Arrivals
from lazerd.predict.durations import Durations, bucket_of, lower_edge
from lazerd.predict.loss import lost_s, next_checkpoint_in_s, saved_s
from lazerd.predict.remaining import Everybody, Given, History
from lazerd.predict.setup import PRIOR, UNKNOWN_S, Setups


def spec(user: str = "u", gpus: int = 1, **more: float | str | None) -> JobSpec:
    return JobSpec("j", gpus, 0.0, user=user, **more)  # type: ignore[arg-type]


@given(st.floats(1.0, 1e9))
def test_a_value_lies_in_its_bucket(value: float) -> None:
    bucket = bucket_of(value)
    assert lower_edge(bucket) <= value * (1 + 1e-12)
    assert value < lower_edge(bucket + 1) * (1 + 1e-12)


def test_the_mean_beyond_an_age_is_of_those_that_took_longer() -> None:
    seen = Durations()
    for value in (10.0, 100.0, 1_000.0, 3_000.0):
        seen.add(value)
    assert seen.mean_beyond(0.0, 1) == 4_110 / 4
    assert seen.mean_beyond(500.0, 1) == 2_000.0
    assert seen.mean_beyond(500.0, 3) is None


def test_an_estimate_that_was_outlived_is_doubled_until_it_is_not() -> None:
    assert Given().total_s(spec(estimate_s=100.0), 0.0) == 100.0
    assert Given().total_s(spec(estimate_s=100.0), 100.0) == 200.0
    assert Given().total_s(spec(estimate_s=100.0), 1_000.0) == 1_600.0


def test_history_asks_the_narrowest_group_with_enough_jobs() -> None:
    history = History()
    for _ in range(3):
        history.learn(spec("a", name="train"), 1_000.0)
        history.learn(spec("a", name="test"), 10.0)
        history.learn(spec("b"), 100.0)
    assert history.total_s(spec("a", name="test"), 0.0) == 10.0
    assert history.total_s(spec("a", name="new"), 0.0) == 505.0  # the user's
    assert history.total_s(spec("c"), 0.0) == 370.0  # everybody's of that size
    assert history.total_s(spec("a", name="test"), 50.0) == 1_000.0  # older than its like


@given(st.lists(st.floats(1.0, 1e7), max_size=30), st.floats(0.0, 1e8))
def test_a_total_is_always_more_than_the_age(totals: list[float], age_s: float) -> None:
    for source in (Given(), History(), Everybody()):
        for total_s in totals:
            source.learn(spec(), total_s)
        assert source.total_s(spec(), age_s) > age_s


def test_setups_lean_on_wider_groups_until_enough_were_seen() -> None:
    setups = Setups()
    assert setups.expected_s(spec()) == UNKNOWN_S
    for _ in range(50):
        setups.learn(spec(gpus=8, job_class="big"), 1_200.0)
    assert setups.expected_s(spec(gpus=8, job_class="big")) == pytest.approx(1_200.0, rel=0.01)
    all_s = (50 * 1_200.0 + PRIOR * UNKNOWN_S) / (50 + PRIOR)
    assert setups.expected_s(spec(gpus=1, job_class="new")) == pytest.approx(all_s)
    assert setups.expected_s(spec(setup_s=7.0)) == 7.0


def test_the_time_since_the_last_arrival_says_most_about_the_next() -> None:
    arrivals = Arrivals()
    now_s = 0.0
    for _ in range(20):  # bursts of five, a second apart, an hour between them
        for _ in range(5):
            arrivals.observe(now_s)
            now_s += 1.0
        now_s += 3_600.0
    last_s = now_s - 3_601.0
    assert arrivals.within(2.0, last_s) > 0.7
    assert arrivals.within(2.0, last_s + 60.0) == 0.0
    assert arrivals.within(7_200.0, last_s + 60.0) == 1.0


def working(checkpoint_s: float | None) -> Job:
    job = Job(spec(checkpoint_s=checkpoint_s), 0)
    job.phase = Phase.WORKING
    job.done_s = job.safe_s = 1_000.0
    job.working_s = 50.0
    return job


def test_what_a_preemption_takes() -> None:
    assert lost_s(working(None), 300.0) == 0.0
    regular = working(100.0)  # 250 s of work since its start: two checkpoints, and 50 s
    assert saved_s(regular, 300.0) == 1_200.0
    assert lost_s(regular, 300.0) == 50.0
    assert next_checkpoint_in_s(regular, 300.0) == 50.0
    regular.safe_s = 1_230.0  # a report counts more than the rhythm
    assert lost_s(regular, 300.0) == 20.0
    never = working(math.inf)
    assert lost_s(never, 300.0) == 250.0
    assert next_checkpoint_in_s(never, 300.0) == math.inf


def test_errors_are_factors() -> None:
    accuracy = Accuracy()
    for actual_s in (50.0, 200.0):
        accuracy.observe(100.0, actual_s)
    assert accuracy.bias == pytest.approx(0.0)
    assert accuracy.sigma == pytest.approx(math.log(2.0))


def test_gittins_ranks_follow_who_is_likely_to_end_soon() -> None:
    seen = Durations()
    for _ in range(90):
        seen.add(100.0)
    for _ in range(10):
        seen.add(1_000_000.0)
    young, older = ranks(seen)[0], ranks(seen)[3]
    assert young < 200.0  # nine of ten end within some 100 GPU-seconds
    assert older > 100_000.0  # who is past that goes on for long
    assert len(ranks(seen)) == len(LEVELS_GPU_S)
