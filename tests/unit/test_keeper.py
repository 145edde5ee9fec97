"""When the keeper starts another daemon, and when it gives up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cachexfs.keeper import PAUSES_S, SERVED_S, Deaths

AT_ONCE_S, LATER_S = SERVED_S / 2, SERVED_S * 2


def test_the_first_death_costs_no_pause() -> None:
    assert Deaths().pause_s(LATER_S) == 0.0
    assert Deaths().pause_s(AT_ONCE_S) == 0.0


def test_pauses_grow_while_daemons_die_at_once_and_then_it_ends() -> None:
    deaths = Deaths()
    assert [deaths.pause_s(AT_ONCE_S) for _ in PAUSES_S] == list(PAUSES_S)
    assert list(PAUSES_S) == sorted(PAUSES_S)
    assert deaths.pause_s(AT_ONCE_S) is None
    assert deaths.pause_s(AT_ONCE_S) is None


def test_a_daemon_that_served_for_a_while_begins_the_count_anew() -> None:
    deaths = Deaths()
    for _ in PAUSES_S:
        deaths.pause_s(AT_ONCE_S)
    assert deaths.pause_s(LATER_S) == 0.0
    assert deaths.pause_s(AT_ONCE_S) == PAUSES_S[1]


@given(st.lists(st.just(LATER_S) | st.just(AT_ONCE_S), max_size=30))
def test_it_gives_up_after_as_many_deaths_at_once_as_there_are_pauses(lives: list[float]) -> None:
    deaths, in_a_row = Deaths(), 0
    for served_s in lives:
        in_a_row = 1 if served_s == LATER_S else in_a_row + 1
        assert (deaths.pause_s(served_s) is None) == (in_a_row > len(PAUSES_S))


def test_killing_it_every_two_seconds_for_ever_is_no_reason_to_give_up() -> None:
    deaths = Deaths()
    assert {deaths.pause_s(1.0) for _ in range(1000)} == {0.0}
