"""The life of a file under any events in any order."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachexfs.durability.life import (
    STORY_LENGTH,
    Acknowledged,
    Committed,
    Deleted,
    Event,
    Evicted,
    IllegalEvent,
    Life,
    ReplicaLost,
    Settled,
    Written,
)
from cachexfs.durability.states import Effect, State

PEERS = st.sampled_from(["b", "c"])
STEPS = st.sampled_from(["write", "settle", "ack", "lose", "commit", "evict", "delete"])


def _event(life: Life, step: str, peer: str, back: int) -> Event:
    """An event that the parts around a life can really send: about versions that were settled."""
    version = max(1, life.settled - back)
    table: dict[str, Event] = {
        "write": Written(),
        "settle": Settled(),
        "ack": Acknowledged(peer, version),
        "lose": ReplicaLost(peer),
        "commit": Committed(version),
        "evict": Evicted(),
        "delete": Deleted(),
    }
    return table[step]


def _can_happen(life: Life, step: str) -> bool:
    if step in ("ack", "commit"):
        return life.settled > 0
    return step != "evict" or life.state is State.DURABLE  # the only RAM copies given up


@given(st.lists(st.tuples(STEPS, PEERS, st.integers(0, 2)), max_size=60), st.integers(1, 2))
def test_every_claim_is_true_after_every_event(
    steps: list[tuple[str, str, int]], copies: int
) -> None:
    life = Life(copies)
    for now, (step, peer, back) in enumerate(steps):
        if not _can_happen(life, step):
            continue
        before = copy.deepcopy(life)
        try:
            life.handle(_event(life, step, peer, back), now)
        except IllegalEvent:
            assert life == before, "an illegal event changed something"
        life.validate()
        assert len(life.chapters) <= STORY_LENGTH


def test_the_way_of_a_file() -> None:
    life = Life()
    assert life.handle(Written(), 0) == ()
    assert life.handle(Settled(), 1) == (Effect.REPLICATE, Effect.FLUSH)
    assert life.handle(Acknowledged("b", 1), 2) == ()
    assert (life.state, life.holders()) == (State.REPLICATED, ["b"])
    life.handle(Committed(1), 3)
    assert life.state is State.DURABLE
    assert [line.rpartition(": ")[2] for line in life.story()] == [
        "open",
        "captured",
        "replicated",
        "durable",
    ]


def test_a_report_about_an_older_version_claims_nothing() -> None:
    life = Life()
    life.handle(Settled(), 0)
    assert life.handle(Written(), 1) == (Effect.CANCEL,)
    life.handle(Committed(1), 2)
    assert life.state is State.OPEN
    assert life.reached(State.DURABLE, 1)
    assert not life.reached(State.CAPTURED, 2)


def test_two_copies_are_wanted_before_replicated() -> None:
    life = Life(copies_wanted=2)
    life.handle(Settled(), 0)
    life.handle(Acknowledged("b", 1), 1)
    assert life.state is State.CAPTURED
    life.handle(Acknowledged("c", 1), 2)
    assert life.state is State.REPLICATED
    assert life.handle(ReplicaLost("b"), 3) == (Effect.REPLICATE,)
    assert life.state is State.CAPTURED


def test_writing_to_what_is_gone_is_illegal() -> None:
    life = Life()
    life.handle(Deleted(), 0)
    with pytest.raises(IllegalEvent):
        life.handle(Written(), 1)
