"""What is brought back: the newest of each path, from whoever holds exactly that."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cachexfs.peers.messages import Kind, Replica
from cachexfs.recovery.plan import Wanted, is_same_file, plan


def held(path: bytes, version: int = 1, kind: Kind = "file", at_ns: int | None = None) -> Replica:
    return Replica(
        volume="v", path=path, kind=kind, owner="n", version=version,
        closed_at_ns=version if at_ns is None else at_ns,
    )  # fmt: skip


def test_the_newest_version_is_wanted_from_those_that_hold_exactly_it() -> None:
    old, new = held(b"a", 1), held(b"a", 2)
    assert plan({"p": [old], "q": [new], "r": [new]}) == [Wanted(new, ["q", "r"])]


def test_directories_come_before_what_is_in_them() -> None:
    replicas = [held(b"d/x/f"), held(b"d/x", kind="directory"), held(b"d", kind="directory")]
    assert [w.replica.path for w in plan({"p": replicas})] == [b"d", b"d/x", b"d/x/f"]


def test_what_was_deleted_stays_deleted_though_one_peer_still_has_it() -> None:
    gone = held(b"d", 0, "gone", at_ns=5)
    assert plan({"p": [held(b"d/f", 3), held(b"d", 4)], "q": [gone]}) == []


def test_what_was_made_after_a_deletion_comes_back() -> None:
    gone, new = held(b"d", 0, "gone", at_ns=5), held(b"d/f", 6)
    assert plan({"p": [gone], "q": [new]}) == [Wanted(new, ["q"])]


def test_an_equal_version_with_other_content_is_no_holder() -> None:
    one, other = held(b"a"), Replica(
        volume="v", path=b"a", kind="file", owner="n", version=1, closed_at_ns=1, crcs=b"1234",
        size_bytes=1,
    )  # fmt: skip
    (wanted,) = plan({"p": [one], "q": [other]})
    assert len(wanted.holders) == 1


def test_two_names_of_one_file_are_known_as_that() -> None:
    def file(path: bytes, version: int, size_bytes: int = 1) -> Replica:
        return Replica(
            volume="v", path=path, kind="file", owner="n", version=version, closed_at_ns=version,
            size_bytes=size_bytes, crcs=b"1234",
        )  # fmt: skip

    wanted = plan({"p": [file(b"a", 7), file(b"b", 7), file(b"c", 8), file(b"d", 9, 0)]})
    assert [each.is_linked for each in wanted] == [True, True, False, False]
    assert is_same_file(file(b"a", 7), file(b"b", 7))
    assert not is_same_file(file(b"c", 8), file(b"a", 7))
    assert not is_same_file(file(b"d", 9, 0), file(b"e", 9, 0))


@given(
    st.lists(st.tuples(st.sampled_from("pqr"), st.sampled_from([b"a", b"b"]), st.integers(1, 4)))
)
def test_every_path_is_wanted_once_in_its_newest_version(
    held_by: list[tuple[str, bytes, int]],
) -> None:
    listings: dict[str, list[Replica]] = {}
    for peer, path, version in held_by:
        listings.setdefault(peer, []).append(held(path, version))
    found = {wanted.replica.path: wanted.replica.version for wanted in plan(listings)}
    assert found == {path: max(v for _, p, v in held_by if p == path) for _, path, _ in held_by}
