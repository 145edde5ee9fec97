"""The ladder of evidence: what is work, what is not, and that nothing is ever called idle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazerd.backend.protocol import Evidence, Rung
from lazerd.sensor.evidence import Ladder, Rule, Sample, Use

HOUR_S = 3600.0
PERIOD_S = 2.0


class Feed:
    """Samples of several nodes into one ladder, every `PERIOD_S`."""

    def __init__(self, ladder: Ladder) -> None:
        self.ladder = ladder
        self.now_s = 0.0
        self.seq = 0

    def give(self, **nodes: list[int | None]) -> Evidence:
        """One sample of each node: per cent of each GPU on which the job holds a context."""
        self.now_s += PERIOD_S
        self.seq += 1
        for node, busy in nodes.items():
            uses = [Use(f"{node}{n}", b, "MIG" * (b is None)) for n, b in enumerate(busy)]
            self.ladder.observe(Sample(node, self.seq, tuple(uses)), self.now_s)
        return self.ladder.evidence(self.now_s)


@pytest.fixture
def gang_of_two() -> Feed:
    return Feed(Ladder({"a": 2}))


def test_nothing_is_set_up(gang_of_two: Feed) -> None:
    evidence = gang_of_two.give(a=[])
    assert (evidence.rung, evidence.complete) == (Rung.NOTHING, True)
    assert "set-up" in evidence.detail


def test_a_context_is_not_work(gang_of_two: Feed) -> None:
    for _ in range(100):
        assert gang_of_two.give(a=[0, 0]).rung is Rung.CONTEXT
    assert not gang_of_two.ladder.working


def test_case_37_a_long_download_at_0_percent_is_set_up(gang_of_two: Feed) -> None:
    while gang_of_two.now_s < HOUR_S:
        evidence = gang_of_two.give(a=[0, 0])
    assert evidence.detail.startswith("set-up")
    for _ in range(3):
        evidence = gang_of_two.give(a=[90, 80])
    assert evidence.rung is Rung.BUSY


def test_one_flicker_is_not_work(gang_of_two: Feed) -> None:
    gang_of_two.give(a=[0, 0])
    assert gang_of_two.give(a=[70, 70]).rung is Rung.FIRST_KERNEL
    for _ in range(50):
        assert gang_of_two.give(a=[0, 0]).rung is Rung.FIRST_KERNEL
    assert not gang_of_two.ladder.working


def test_flickers_far_apart_do_not_add_up(gang_of_two: Feed) -> None:
    for _ in range(20):
        gang_of_two.give(a=[70, 70])
        for _ in range(5):
            gang_of_two.give(a=[0, 0])
    assert not gang_of_two.ladder.working


def test_one_rank_that_spins_while_the_others_load_is_not_work(gang_of_two: Feed) -> None:
    for _ in range(50):
        evidence = gang_of_two.give(a=[100, 0])
    assert evidence.rung is Rung.FIRST_KERNEL
    assert "1 of 2" in evidence.detail


def test_a_rank_without_a_context_counts(gang_of_two: Feed) -> None:
    for _ in range(50):
        assert gang_of_two.give(a=[100]).rung is Rung.FIRST_KERNEL


def test_a_pause_between_steps_does_not_matter(gang_of_two: Feed) -> None:
    for busy in ([9, 0], [9, 9], [0, 9], [9, 9]):
        evidence = gang_of_two.give(a=busy)
    assert evidence.rung is Rung.BUSY
    assert gang_of_two.ladder.working


def test_work_is_not_taken_back(gang_of_two: Feed) -> None:
    for _ in range(3):
        gang_of_two.give(a=[50, 50])
    for _ in range(100):  # a checkpoint is written, an evaluation runs on the CPU
        assert gang_of_two.give(a=[0, 0]).rung is Rung.BUSY
    assert gang_of_two.ladder.working


def test_all_nodes_of_a_gang() -> None:
    feed = Feed(Ladder({"a": 1, "b": 1}))
    for _ in range(10):
        evidence = feed.give(a=[99], b=[0])
    assert evidence.rung is Rung.FIRST_KERNEL
    for _ in range(3):
        evidence = feed.give(a=[99], b=[99])
    assert evidence.rung is Rung.BUSY


def test_a_node_that_says_nothing_is_said_to_be_missing() -> None:
    feed = Feed(Ladder({"a": 1, "b": 1}))
    for _ in range(10):
        evidence = feed.give(a=[99])
    assert evidence.rung is Rung.FIRST_KERNEL
    assert not evidence.complete
    assert "no sample from b" in evidence.detail


def test_nodes_have_to_be_busy_together() -> None:
    feed = Feed(Ladder({"a": 1, "b": 1}))
    for _ in range(5):
        feed.give(a=[99], b=[0])
    feed.now_s += 60.0  # longer than a sample is fresh
    for _ in range(5):
        feed.give(b=[99])
    assert not feed.ladder.working
    assert feed.give(a=[99], b=[99]).rung is Rung.FIRST_KERNEL  # before the gap does not count


def test_a_sample_that_comes_twice_counts_once() -> None:
    ladder = Ladder({"a": 1})
    for _ in range(20):
        evidence = ladder.observe(Sample("a", 7, (Use("0", 80),)), 1.0)
    assert evidence.rung is Rung.FIRST_KERNEL


def test_another_nodes_sample_is_ignored() -> None:
    feed = Feed(Ladder({"a": 1}))
    for _ in range(5):
        assert feed.give(z=[99]).rung is Rung.NOTHING


def test_what_cannot_be_seen_has_to_be_said(gang_of_two: Feed) -> None:
    for _ in range(50):
        evidence = gang_of_two.give(a=[99, None])
    assert not evidence.complete
    assert "MIG" in evidence.detail
    assert "lazer working" in evidence.detail
    said = gang_of_two.ladder.say("its first checkpoint is safe", gang_of_two.now_s)
    assert said == Evidence(Rung.SAID, "its first checkpoint is safe")
    assert gang_of_two.ladder.working


@pytest.mark.parametrize(
    ("needed", "samples"), [(Rung.CONTEXT, [[0]]), (Rung.FIRST_KERNEL, [[0], [1]])]
)
def test_a_weaker_rule(needed: Rung, samples: list[list[int | None]]) -> None:
    feed = Feed(Ladder({"a": 1}, Rule(needed=needed)))
    feed.give(a=[])
    for sample in samples:
        assert not feed.ladder.working
        feed.give(a=sample)
    assert feed.ladder.working


@given(
    st.lists(st.lists(st.integers(0, 100) | st.none(), min_size=3, max_size=3), max_size=30),
)
def test_it_never_leads_down_and_works_only_with_proof(
    samples: list[list[int | None]],
) -> None:
    feed, rung = Feed(Ladder({"a": 3})), Rung.NOTHING
    for n, sample in enumerate(samples):
        evidence = feed.give(a=sample)
        assert evidence.rung >= rung
        if rung < Rung.BUSY <= evidence.rung:
            window = samples[max(0, n - 4) : n + 1]
            assert all(sum(bool(s[gpu]) for s in window) >= 3 for gpu in range(3))
        rung = evidence.rung
