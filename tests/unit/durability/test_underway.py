"""Bytes that are still to be moved: all at first, then less by the rate that was seen."""

from __future__ import annotations

from cachexfs.measurements.underway import UnderWay

MB = 1_000_000


def test_before_any_end_all_of_it_is_left() -> None:
    line = UnderWay()
    line.begin(10 * MB, 0.0)
    assert line.left_bytes(5.0) == 10 * MB


def test_what_was_moved_meanwhile_is_not_left() -> None:
    line = UnderWay()
    line.begin(20 * MB, 0.0)
    line.end(20 * MB, 2.0)  # 10 MB/s
    line.begin(30 * MB, 100.0)  # the pause before it is no evidence
    line.begin(10 * MB, 101.0)
    assert line.left_bytes(102.0) == 20 * MB
    assert line.left_bytes(200.0) == 0


def test_the_rate_is_that_between_two_ends() -> None:
    """Two at once share the link: each takes 4 s, and 40 MB are moved in 4 s."""
    line = UnderWay()
    for _ in range(2):
        line.begin(20 * MB, 0.0)
    line.end(20 * MB, 2.0)
    line.end(20 * MB, 4.0)
    line.begin(50 * MB, 10.0)
    assert line.left_bytes(12.0) == 30 * MB


def test_what_is_given_up_is_not_left_and_says_nothing() -> None:
    line = UnderWay()
    line.begin(20 * MB, 0.0)
    line.begin(30 * MB, 0.0)
    line.give_up(20 * MB)
    assert line.left_bytes(9.0) == 30 * MB


def test_what_came_later_counts_as_far_as_it_can_have_shared() -> None:
    line = UnderWay()
    line.begin(20 * MB, 0.0)
    line.begin(4 * MB, 1.0)
    line.begin(50 * MB, 3.0)  # when 5 MB were left
    line.begin(50 * MB, 5.0)
    assert line.came_during(20 * MB, 0.0, 4.0) == 9 * MB
    assert line.came_during(20 * MB, 6.0, 8.0) == line.came_during(MB, 1.0, 1.0) == 0
