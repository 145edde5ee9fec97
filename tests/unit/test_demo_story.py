"""What the demo compares and tells, without running it."""

from __future__ import annotations

import signal

import pytest

from cachexfs.demo import losses
from cachexfs.demo.sightings import Sightings
from cachexfs.demo.story import Plan
from cachexfs.demo.waiting import Interrupted, NotTrue, Waiting, claim


def test_a_line_that_is_cut_off_is_left_out() -> None:
    assert losses.parse("1 0x1.0p+0\n2 0x1.8p") == {1: "0x1.0p+0"}
    assert losses.parse("") == {}


def test_one_bit_is_a_difference() -> None:
    reference = {1: (0.5).hex(), 2: (0.1).hex()}
    other = {**reference, 2: (0.1 + 2**-56).hex()}
    assert losses.difference(reference, dict(reference), [1, 2]) is None
    assert losses.difference(reference, other, [1]) is None
    assert "at step 2" in str(losses.difference(reference, other, [1, 2]))
    assert losses.difference(reference, reference, [3]) == "step 3 is missing"


def test_each_state_is_noted_when_first_seen() -> None:
    seen = Sightings()
    for state, age_s in (("open", 0.0), ("captured", 0.1), ("captured", 0.2), ("durable", 1.0)):
        seen.note([{"path": "x", "state": state, "age_s": age_s}])
    assert seen.states("x") == {"open": 0.0, "captured": 0.1, "durable": 1.0}
    assert seen.story("x") == "seen open, captured 0.10 s old, durable 1.00 s old"


@pytest.mark.parametrize("steps", [24, 60, 61, 600])
def test_the_node_dies_between_two_checkpoints(steps: int) -> None:
    plan = Plan(steps)
    assert plan.killed_after % plan.every == 0
    assert plan.killed_after + 2 * plan.every < steps
    assert plan.checkpoint(plan.killed_after) == f"run/step-{plan.killed_after:06d}.npz"


def test_a_signal_ends_the_next_wait_and_nothing_before() -> None:
    waiting = Waiting()
    waiting.mark(signal.SIGTERM)
    waiting.mark(signal.SIGINT)
    with pytest.raises(Interrupted) as ended:
        waiting.until(lambda: True, "it", 1.0)
    assert ended.value.exit_code == 128 + signal.SIGTERM


def test_waiting_ends_with_the_first_true_value_or_a_sentence() -> None:
    assert Waiting().until(iter([None, 0, 7]).__next__, "it", 5.0) == 7
    with pytest.raises(NotTrue, match="it: not within 0 s"):
        Waiting().until(lambda: None, "it", 0.0)
    with pytest.raises(NotTrue, match="not true: the sky is green"):
        claim(False, "the sky is green")
