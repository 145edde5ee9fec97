"""Which questions of a thread belong to one open."""

from __future__ import annotations

import pytest

from cachexfs.durability.paths import Traffic
from cachexfs.measurements.openings import SILENT_S, THREADS_AT_MOST, Opening, Openings


class Asking:
    """Threads that ask, on a clock moved by hand."""

    def __init__(self) -> None:
        self.now_s = 50.0
        self.flushing = 0
        self.told: list[tuple[int, Opening]] = []
        self.openings = Openings(
            lambda: Traffic((), self.flushing),
            lambda ino, opening: self.told.append((ino, opening)),
            lambda: self.now_s,
        )

    def ask(self, what: object, tid: int = 1, took_s: float = 0.1) -> None:
        with self.openings.question(tid, what):  # type: ignore[arg-type]
            self.now_s += took_s

    def waited_s(self, tid: int = 1) -> float:
        return self.now_s - self.openings.begun(tid).since_s


@pytest.fixture
def asking() -> Asking:
    return Asking()


def test_the_questions_of_one_walk_are_one_opening(asking: Asking) -> None:
    asking.flushing = 7
    asking.ask(1)
    asking.flushing = 9
    asking.ask("a name in 1")
    asking.now_s += SILENT_S / 2
    asking.ask("a name in 2")
    opening = asking.openings.begun(1)
    assert opening == Opening(50.0, Traffic((), 7))  # the load at its begin
    asking.openings.opened(5, opening)
    assert asking.told == [(5, opening)]
    assert asking.waited_s() == 0.0  # it is used up


def test_what_was_asked_long_ago_is_another_call(asking: Asking) -> None:
    asking.ask("a name in 1")
    asking.now_s += 2 * SILENT_S
    assert asking.waited_s() == 0.0
    asking.ask("a name in 1")
    assert asking.waited_s() == pytest.approx(0.1)


def test_who_asks_the_same_again_is_in_another_call(asking: Asking) -> None:
    """A program that looks whether the file, or another beside it, is there, and then makes it."""
    asking.ask("a name in 1")
    asking.ask("a name in 2")
    asking.ask("a name in 2")
    assert asking.waited_s() == pytest.approx(0.1)


def test_threads_do_not_know_of_each_other(asking: Asking) -> None:
    asking.ask("a name in 1", tid=1)
    asking.ask("a name in 1", tid=2)
    assert asking.waited_s(2) == pytest.approx(0.1)
    assert asking.openings.begun(1).since_s == asking.now_s  # silent for as long as the other asked


def test_a_question_that_is_not_answered_yet_goes_on(asking: Asking) -> None:
    with asking.openings.question(1, "one"):
        asking.now_s += 5.0
        assert asking.waited_s() == 5.0


def test_an_error_is_an_answer(asking: Asking) -> None:
    with pytest.raises(FileNotFoundError), asking.openings.question(1, "one"):
        asking.now_s += 0.3
        raise FileNotFoundError
    assert asking.waited_s() == pytest.approx(0.3)


def test_threads_that_are_gone_are_forgotten(asking: Asking) -> None:
    for tid in range(THREADS_AT_MOST + 10):
        asking.ask("one", tid, took_s=0.0)
    assert len(asking.openings._chains) == THREADS_AT_MOST
