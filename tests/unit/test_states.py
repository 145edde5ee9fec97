"""The table of states: whole, and honest about what each step needs."""

from __future__ import annotations

import pytest

from cachexfs.durability.states import LEVELS, PHASES, TABLE, Effect, State, Step, markdown


def test_every_state_has_a_row() -> None:
    assert set(TABLE) == set(State)


def test_states_are_ordered_by_safety() -> None:
    assert State.LOST < State.OPEN < State.CAPTURED < State.REPLICATED < State.DURABLE
    assert [phase.ends_in for phase in PHASES if phase.ends_in] == list(LEVELS.values())


@pytest.mark.parametrize("state", [s for s in State if s is not State.GONE])
def test_a_file_may_be_written_and_deleted_in_every_state(state: State) -> None:
    assert TABLE[state][Step.WRITTEN].to is State.OPEN
    assert TABLE[state][Step.DELETED].to is State.GONE


@pytest.mark.parametrize("state", [State.CAPTURED, State.REPLICATED, State.DURABLE])
def test_a_write_and_a_deletion_cancel_what_is_on_its_way(state: State) -> None:
    assert Effect.CANCEL in TABLE[state][Step.WRITTEN].effects
    assert Effect.CANCEL in TABLE[state][Step.DELETED].effects


def test_nothing_leads_out_of_the_end() -> None:
    assert TABLE[State.GONE] == {}


def test_the_table_can_be_printed() -> None:
    assert len(markdown().splitlines()) == 2 + sum(len(moves) for moves in TABLE.values())
