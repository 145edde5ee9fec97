"""The store on a real disk: what is acknowledged is there, what is old never comes back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from peering import VOLUME, replica

from cachexfs.durability.checksum import CHUNK_BYTES, chunks
from cachexfs.peers import messages as m
from cachexfs.peers.batch import Change, Put, Step
from cachexfs.peers.messages import Replica
from cachexfs.peers.refusal import Refusal
from cachexfs.peers.store import Store, StoreUnusable

BIG = os.urandom(2 * CHUNK_BYTES + 10)


class Peer:
    """A store and the sessions that talk to it."""

    def __init__(self, directory: Path, limit_bytes: int | None = None) -> None:
        self.store = Store(directory, limit_bytes)
        self._ids: dict[bytes, int] = {}

    def step(self, order: Put | Change | Refusal, session: bytes = b"1") -> Step:
        self._ids[session] = self._ids.get(session, 0) + 1
        return Step(session, self._ids[session], order)

    def offer(self, held: Replica, content: bytes = b"", session: bytes = b"1") -> Put:
        part = self.store.offer(held, session)
        view = memoryview(content)
        for chunk in chunks(len(content)) if part else ():
            if part is not None and chunk.number in part.missing:
                assert part.write(chunk.number, view[chunk.offset : chunk.offset + chunk.length])
        return Put(held, part)

    def put(self, held: Replica, content: bytes = b"", session: bytes = b"1") -> None:
        assert self.do(self.offer(held, content, session), session) is None

    def do(self, order: Put | Change, session: bytes = b"1") -> Refusal | None:
        return self.store.apply([self.step(order, session)])[0]

    @property
    def held(self) -> dict[bytes, int]:
        """Version by path."""
        rows = self.store.listing(VOLUME, b"", b"")
        return {row.path: row.version for row in rows if row.kind != "gone"}


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[Peer]:
    made = Peer(tmp_path / "store")
    yield made
    made.store.close()


def files(path: Path) -> list[str]:
    return sorted(file.name for file in path.iterdir())


def test_the_store_is_private_and_has_one_user(peer: Peer) -> None:
    assert peer.store.directory.stat().st_mode & 0o777 == 0o700
    with pytest.raises(StoreUnusable, match="in use"):
        Store(peer.store.directory)


def test_a_directory_that_cannot_be_a_store_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnusable, match="file"):
        Store(tmp_path / "file")


def test_an_older_version_never_replaces_a_newer_one(peer: Peer) -> None:
    peer.put(replica(b"a", b"new", 2), b"new")
    peer.put(replica(b"a", b"old", 1), b"old")
    peer.put(replica(b"a", b"other", 9, owner="x", closed_at_ns=1), b"other", b"2")
    assert peer.held == {b"a": 2}
    peer.put(replica(b"a", b"other", 1, owner="x", closed_at_ns=3), b"other", b"2")
    assert peer.held == {b"a": 1}
    assert len(files(peer.store.directory / "data")) == 1


def test_a_part_is_resumed_after_the_store_was_opened_again(tmp_path: Path) -> None:
    first = Peer(tmp_path / "store")
    part = first.store.offer(replica(b"big", BIG), b"1")
    assert part is not None and part.missing_ranges() == [(0, 3)]
    assert part.write(1, memoryview(BIG)[CHUNK_BYTES : 2 * CHUNK_BYTES])
    first.store.abandon(part)
    first.store.close()
    second = Peer(tmp_path / "store")
    part = second.store.offer(replica(b"big", BIG), b"1")
    assert part is not None and part.missing_ranges() == [(0, 1), (2, 3)]
    second.store.abandon(part)
    second.store.close()


def test_a_chunk_that_does_not_match_is_not_taken(peer: Peer) -> None:
    part = peer.store.offer(replica(b"big", BIG), b"1")
    assert part is not None
    assert not part.write(0, memoryview(BIG)[1 : CHUNK_BYTES + 1])
    assert not part.write(2, memoryview(BIG)[:10])
    assert part.missing_ranges() == [(0, 3)]
    peer.store.withdraw(part)
    assert files(peer.store.directory / "parts") == []


def test_what_no_row_explains_is_swept_on_start(tmp_path: Path) -> None:
    peer = Peer(tmp_path / "store")
    peer.put(replica(b"a", b"a"), b"a")
    peer.store.close()
    (tmp_path / "store/data/77").write_bytes(b"orphan")
    old = tmp_path / "store/parts/old.part"
    old.write_bytes(b"")
    os.utime(old, (1, 1))
    Store(tmp_path / "store").close()
    assert files(tmp_path / "store/data") == ["1"] and files(tmp_path / "store/parts") == []


def test_deleted_files_do_not_come_back_with_a_late_put(peer: Peer) -> None:
    peer.put(replica(b"d/a", b"a", 5), b"a")
    assert peer.do(m.Unlink(0, VOLUME, b"d", 9)) is None
    peer.put(replica(b"d/a", b"a", 6, owner="late"), b"a", b"2")
    assert peer.held == {}
    peer.put(replica(b"d/a", b"a", 10, owner="late"), b"a", b"2")
    assert peer.held == {b"d/a": 10}


def test_an_unlink_leaves_what_another_owner_closed_later(peer: Peer) -> None:
    peer.put(replica(b"d/a", b"a", 5), b"a")
    peer.put(replica(b"d/b", b"b", 50, owner="x"), b"b", b"2")
    assert peer.do(m.Unlink(0, VOLUME, b"d", 9)) is None
    assert peer.held == {b"d/b": 50}


def test_a_clock_that_goes_back_does_not_undo_the_order_of_one_session(peer: Peer) -> None:
    peer.put(replica(b"a", b"1", 1, closed_at_ns=100), b"1")
    assert peer.do(m.Unlink(0, VOLUME, b"a", 50)) is None
    assert peer.held == {}
    peer.put(replica(b"a", b"2", 2, closed_at_ns=40), b"2")
    assert peer.held == {b"a": 2}


def test_a_rename_replaces_and_moves_all_below(peer: Peer) -> None:
    peer.put(replica(b"d/a", b"a"), b"a")
    peer.put(replica(b"d0", b"x", 2), b"x")
    peer.put(replica(b"e", b"old", 7), b"old")
    assert peer.do(m.Rename(0, VOLUME, b"d", b"e")) is None
    assert peer.held == {b"d0": 2, b"e/a": 1}
    refusal = peer.do(m.Rename(0, VOLUME, b"d", b"e"))
    assert refusal is not None and refusal.code == "NotFound"
    refusal = peer.do(m.Rename(0, VOLUME, b"e", b"e/f"))
    assert refusal is not None and refusal.code == "BadPath"


def test_a_name_that_is_there_again_has_no_tombstone_where_nothing_of_it_is_held(
    peer: Peer,
) -> None:
    for order in (m.Rename(0, VOLUME, b"tmp", b"final"), m.Link(0, VOLUME, b"tmp", b"final")):
        assert peer.do(m.Unlink(0, VOLUME, b"final/a", 30)) is None
        assert peer.do(m.Unlink(0, VOLUME, b"final", 30)) is None
        refusal = peer.do(order)
        assert refusal is not None and refusal.code == "NotFound"
        assert peer.store.listing(VOLUME, b"final", b"") == []


def test_links_share_content_until_the_last_goes(peer: Peer) -> None:
    peer.put(replica(b"a", b"a"), b"a")
    assert peer.do(m.Link(0, VOLUME, b"a", b"b")) is None
    assert peer.do(m.Unlink(0, VOLUME, b"a", 9)) is None
    opened = peer.store.open(VOLUME, b"b", 1)
    assert os.pread(opened.fd, 9, 0) == b"a"
    os.close(opened.fd)
    assert peer.do(m.Unlink(0, VOLUME, b"b", 9)) is None
    assert files(peer.store.directory / "data") == []


def test_a_group_shares_one_directory_fsync(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    monkeypatch.setattr("cachexfs.peers.store.sync_directory", synced.append)
    puts = [peer.step(peer.offer(replica(b"%d" % n, b"x"), b"x")) for n in range(20)]
    assert peer.store.apply(puts) == [None] * 20
    assert len(synced) == 1 and len(peer.held) == 20


def test_an_order_is_done_once_however_often_it_comes(peer: Peer) -> None:
    peer.put(replica(b"a", b"a", 1), b"a")
    peer.put(replica(b"b", b"b", 2), b"b")
    exchange = peer.step(m.Rename(0, VOLUME, b"a", b"b", exchange=True))
    bad = peer.step(m.Unlink(0, VOLUME, b"..", 1))
    for _ in range(3):
        first, second = peer.store.apply([exchange, bad])
        assert first is None and second is not None and second.code == "BadPath"
    assert peer.held == {b"a": 2, b"b": 1}
    done = peer.store.progress(b"1")
    assert done.done_id == 4 and [number for number, _, _ in done.refused] == [4]


def test_nothing_overtakes_an_order_that_is_to_be_sent_again(peer: Peer) -> None:
    full = Refusal("StoreFull", retry=True)
    steps = [peer.step(full), peer.step(m.Unlink(0, VOLUME, b"a", 1))]
    steps.append(peer.step(m.Unlink(0, VOLUME, b"b", 1), b"2"))
    outcomes = peer.store.apply(steps)
    assert [outcome.retry if outcome else None for outcome in outcomes] == [True, True, None]
    assert peer.store.progress(b"1").done_id == 0


def test_durable_replicas_make_room_oldest_first(tmp_path: Path) -> None:
    peer = Peer(tmp_path / "store", 25)
    for n in range(1, 3):
        peer.put(replica(b"%d" % n, bytes(10), n, durable=True), bytes(10))
    peer.put(replica(b"3", bytes(10), 3), bytes(10))
    assert peer.held == {b"2": 2, b"3": 3}
    peer.put(replica(b"4", bytes(10), 4), bytes(10))
    with pytest.raises(Refusal) as caught:
        peer.store.offer(replica(b"5", bytes(10), 5), b"1")
    assert (caught.value.code, caught.value.retry) == ("StoreFull", True)
    assert peer.held == {b"3": 3, b"4": 4} and peer.store.free_bytes == 5
    peer.store.close()


@pytest.mark.parametrize(
    "wrong", [{"size_bytes": 5}, {"kind": "directory"}, {"kind": "gone"}, {"volume": ""},
              {"size_bytes": 1 << 60}, {"xattrs": {b"user.a": bytes(70_000)}}],
)  # fmt: skip
def test_a_replica_that_contradicts_itself_is_refused(peer: Peer, wrong: dict[str, object]) -> None:
    with pytest.raises(Refusal) as caught:
        peer.store.offer(replica(b"a", b"x" if "size_bytes" not in wrong else b"", **wrong), b"1")
    assert caught.value.code in ("BadReplica", "BadPath")
