"""The register of a home: soft state, and which entry counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachexfs.peers.messages import Entry, Replica
from cachexfs.peers.register import BURIED_S, EXPIRE_S, LISTED_BYTES, Full, Key, Register

KEY = Key("/lustre", 7)


def entry(name: bytes, owner: str, stamp: int, kind: str = "file", **more: object) -> Entry:
    replica = Replica(
        volume="/lustre", path=b"d/" + name, kind=kind,  # type: ignore[arg-type]
        owner=owner, version=stamp, closed_at_ns=stamp, **more,  # type: ignore[arg-type]
    )  # fmt: skip
    return Entry(name=name, stamp=stamp, replica=replica)


changes = st.lists(
    st.tuples(
        st.sampled_from(["put", "forget", "wait"]),
        st.sampled_from([b"f", b"g"]),
        st.sampled_from("abc"),
        st.integers(1, 9),
    ),
    max_size=40,
)


@given(changes)
def test_the_greatest_rank_counts_whatever_the_order(
    steps: list[tuple[str, bytes, str, int]],
) -> None:
    register, now = Register(), 0.0
    best: dict[bytes, tuple[int, str]] = {}
    own: dict[tuple[bytes, str], int] = {}
    for step, name, owner, stamp in steps:
        if step == "put":
            stamp = own[name, owner] = max(stamp, own.get((name, owner), 0))
            outcome = register.put(KEY, entry(name, owner, stamp), now)
            rank = (stamp, owner)
            if name in best and best[name] > rank and best[name][1] != owner:
                assert outcome.beaten_by is not None and outcome.beaten_by.rank == best[name]
            best[name] = max(best.get(name, rank), rank)
            found = register.find(KEY, name, now)
            assert found is None or found.rank <= best[name]
            if outcome.displaced is not None:
                assert outcome.displaced.replica.owner != owner
        elif step == "forget":
            held = register.find(KEY, name, now)
            register.forget(KEY, name, stamp, now)
            after = register.find(KEY, name, now)
            assert after == (held if held is not None and held.stamp > stamp else None)
        else:
            now += stamp
    assert len(register) == register.count_in(KEY) <= 2


def test_the_next_daemon_of_a_node_is_believed() -> None:
    register = Register()
    register.put(KEY, entry(b"f", "a", 5), 0.0)
    assert register.put(KEY, entry(b"f", "a", 4), 1.0) == (None, None)
    assert register.find(KEY, b"f", 1.0) == entry(b"f", "a", 4)
    register.forget(KEY, b"f", 4, 2.0)
    assert register.find(KEY, b"f", 2.0) is None


def test_what_does_not_come_again_is_forgotten() -> None:
    register = Register()
    register.put(KEY, entry(b"f", "a", 1), 0.0)
    assert register.find(KEY, b"f", EXPIRE_S - 1) is not None
    assert register.find(KEY, b"f", EXPIRE_S) is None
    register.put(KEY, entry(b"g", "a", 1), EXPIRE_S + 1)
    assert len(register) == 1


def test_a_node_that_was_away_does_not_bring_back_what_was_replaced() -> None:
    register = Register()
    register.put(KEY, entry(b"f", "a", 5), 0.0)
    assert register.put(KEY, entry(b"f", "b", 6), 1.0).displaced == entry(b"f", "a", 5)
    register.forget(KEY, b"f", 6, 2.0)
    late = register.put(KEY, entry(b"f", "a", 5), 3.0)
    assert late.beaten_by is not None and late.beaten_by.rank == (6, "b")
    assert late.beaten_by.replica.kind == "file"
    assert register.put(KEY, entry(b"f", "a", 7), 4.0).beaten_by is None
    register.forget(KEY, b"f", 7, 5.0)
    register.put(KEY, entry(b"other", "a", 1), 6.0 + BURIED_S)
    assert register.put(KEY, entry(b"f", "c", 1), 7.0 + BURIED_S).beaten_by is None


def test_a_holder_does_not_bring_back_what_the_owner_has_settled() -> None:
    register = Register()
    register.put(KEY, entry(b"f", "a", 5), 0.0)
    register.forget(KEY, b"f", 5, 1.0)  # it is durable, or deleted
    late = register.put(KEY, entry(b"f", "a", 5), 2.0, by_owner=False)
    assert late.beaten_by is not None and late.beaten_by.rank == (5, "a")
    assert register.put(KEY, entry(b"f", "a", 6), 3.0, by_owner=False).beaten_by is None
    register.forget(KEY, b"f", 6, 4.0)
    register.put(KEY, entry(b"f", "a", 6), 5.0)  # its next daemon takes it up again
    assert register.put(KEY, entry(b"f", "a", 6), 6.0, by_owner=False).beaten_by is None


def test_a_full_register_says_so_and_takes_changes_of_what_it_has() -> None:
    register = Register(max_entries=2)
    for name in (b"f", b"g"):
        register.put(KEY, entry(name, "a", 1), 0.0)
    with pytest.raises(Full):
        register.put(KEY, entry(b"h", "a", 1), 0.0)
    register.put(KEY, entry(b"g", "a", 2), 0.0)
    register.put(KEY, entry(b"h", "a", 1), EXPIRE_S + 1)  # there is room again


@given(st.sets(st.binary(min_size=1, max_size=3), max_size=40), st.integers(1, 200))
def test_a_listing_in_parts_is_the_whole(names: set[bytes], crcs_kib: int) -> None:
    register = Register()
    for name in names:
        register.put(KEY, entry(name, "a", 1, crcs=b"c" * (crcs_kib << 10)), 0.0)
    listed, after, more = [], b"", True
    while more:
        part, more = register.listing(KEY, after, 0.0)
        assert sum(len(e.replica.crcs) for e in part) <= LISTED_BYTES + (crcs_kib << 10)
        listed += [e.name for e in part]
        after = listed[-1] if listed else b""
    assert listed == sorted(names)
