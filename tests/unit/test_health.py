"""When the shared file system is said to be in trouble, and when that is over."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

import pytest

from cachexfs.pfs.health import SILENCE, TROUBLE, Health, SourceBlocked


@dataclass
class Clock:
    now_s: float = 100.0

    def __call__(self) -> float:
        self.now_s += 0.001
        return self.now_s


def codes(health: Health) -> list[str]:
    return [problem.code for problem in health.problems()]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def health(clock: Clock) -> Health:
    return Health(2.0, clock)


def test_silence_is_over_when_something_asked_since_is_answered(
    health: Health, clock: Clock
) -> None:
    left_behind = health.begin()
    clock.now_s += 3.0
    health.note(SourceBlocked())
    assert health.is_blocked and "SourceNotAnswering" in codes(health)
    health.end(left_behind)  # it was asked before the trouble was seen
    assert not health.is_blocked and codes(health) == ["SourceNotAnswering"]
    health.end(health.begin())
    assert codes(health) == []


def test_an_error_that_is_no_trouble_is_an_answer(health: Health) -> None:
    health.note(SourceBlocked())
    health.end(health.begin(), FileNotFoundError(errno.ENOENT, "no"))
    assert codes(health) == []


@pytest.mark.parametrize("number", sorted(TROUBLE - SILENCE))
def test_an_answer_does_not_take_back_that_writes_fail(health: Health, number: int) -> None:
    health.note(OSError(number, os.strerror(number)))
    health.end(health.begin())
    assert len(codes(health)) == 1
    health.well()
    assert codes(health) == []


@pytest.mark.parametrize("number", sorted(SILENCE))
def test_a_failed_question_is_no_answer(health: Health, number: int) -> None:
    health.end(health.begin(), OSError(number, os.strerror(number)))
    assert len(codes(health)) == 1
    health.end(health.begin(), OSError(number, os.strerror(number)))
    assert len(codes(health)) == 1
