"""What strangers and members can ask for has a limit, and nothing of it leads out of the store."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import trio
from peering import SECRET, VOLUME, Owner, put, replica, serve, store_at
from test_fetching import Side

from cachexfs.durability.checksum import CHUNK_BYTES
from cachexfs.peers import messages as m
from cachexfs.peers.admission import MAX_OF_NODE
from cachexfs.peers.catalogue import Catalogue
from cachexfs.peers.greeting import Identity, connect
from cachexfs.peers.handshake import HandshakeFailed
from cachexfs.peers.intake import MAX_LINE
from cachexfs.peers.manifest import Manifest
from cachexfs.peers.refusal import Refusal
from cachexfs.peers.register import Full, Key, Register
from cachexfs.peers.replicas import check
from cachexfs.peers.serving import ReadServer
from cachexfs.peers.store import Store, StoreUnusable
from cachexfs.peers.stream import BROKEN, Disconnected, FrameStream
from cachexfs.ram.attributes import Changes, owned
from cachexfs.recovery import DirectorySink, recover


@pytest.fixture
async def address(nursery: trio.Nursery, tmp_path: Path) -> AsyncIterator[str]:
    with store_at(tmp_path / "store") as store:
        yield await serve(nursery, store)
        nursery.cancel_scope.cancel()


async def silent(address: str) -> trio.SocketStream:
    host, _, port = address.rpartition(":")
    return await trio.open_tcp_stream(host, int(port))


async def member(address: str, node: str = "odd") -> FrameStream:
    return (await connect(address, Identity(node, SECRET), os.urandom(16), "peer"))[0]


async def how_it_ends(stream: FrameStream) -> list[m.Message]:
    """What is answered before the connection is closed."""
    answers: list[m.Message] = []
    with suppress(*BROKEN, Disconnected), trio.fail_after(10):
        while True:
            answers.append((await stream.receive()).message)
    await stream.aclose()
    return answers


# --- strangers ---------------------------------------------------------------------------------


@pytest.mark.trio
async def test_any_number_of_strangers_does_not_keep_a_member_out(
    nursery: trio.Nursery,
    address: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("cachexfs.peers.admission.MAX_STRANGERS", 64)
    strangers = [await silent(address) for _ in range(164)]
    owner = Owner(address)
    nursery.start_soon(owner.link.run)
    assert await owner.finish(put(b"a", b"a"), within_s=3) == ["acked"]
    with trio.fail_after(3):
        assert await strangers[0].receive_some(6) == b"CXFS\0\3"
        assert await strangers[0].receive_some(1) == b""
    said = [record.message for record in caplog.records if "stranger" in record.message]
    assert len(said) == 20 and "longest" in said[0]
    assert "more of them, of which nothing is said for a minute" in caplog.text
    for stranger in strangers:
        await stranger.aclose()


@pytest.mark.trio
async def test_a_stranger_that_speaks_slowly_has_the_same_time_as_others(
    address: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("cachexfs.peers.greeting.HANDSHAKE_S", 0.4)
    stranger = await silent(address)
    with trio.fail_after(2), suppress(*BROKEN):
        for byte in b"CXFS\0\3\0\0\x0f\xff\0\0\0\0" + bytes(4000):
            await stranger.send_all(bytes([byte]))
            await trio.sleep(0.02)
    await stranger.aclose()
    assert "a connection from 127.0.0.1 ended in the handshake: it was too slow" in caplog.text


@pytest.mark.trio
async def test_one_node_cannot_take_all_connections(nursery: trio.Nursery, address: str) -> None:
    many = [await member(address, "greedy") for _ in range(MAX_OF_NODE)]
    with pytest.raises(HandshakeFailed, match="refused: Busy: greedy has 128 connections open"):
        await member(address, "greedy")
    other = await member(address, "other")
    await many.pop().aclose()
    with trio.fail_after(3):
        while True:
            with suppress(HandshakeFailed):
                many.append(await member(address, "greedy"))
                break
    for stream in [*many, other]:
        await stream.aclose()


# --- members -----------------------------------------------------------------------------------


@pytest.mark.trio
async def test_orders_behind_a_file_that_never_comes_do_not_pile_up(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    stream = await member(address)
    with suppress(*BROKEN):
        await stream.send(m.Offer(1, replica(b"never", b"x")))
        for number in range(2, 2 * MAX_LINE):
            await stream.send(m.Unlink(number, VOLUME, b"d/%d" % number, 1))
    await how_it_ends(stream)
    assert f"more than {MAX_LINE} orders at a time" in caplog.text


NO_ID = 0xFFFFFFFF
WRONG = {
    "a zero byte in the volume": {"volume": "/lustre\0"},
    "a volume that is too long": {"volume": "v" * 5000},
    "a path that is too long": {"path": b"/".join([b"n" * 200] * 30)},
    "no owner": {"owner": ""},
    "an owner that cannot be printed": {"owner": "\x1b[2J"},
    "a long owner": {"owner": "n" * 300},
    "a long job": {"job": "j" * 5000},
    "a zero byte in an attribute": {"xattrs": {b"user.a\0b": b""}},
    "an attribute without a name": {"xattrs": {b"": b"x"}},
    "a long attribute's name": {"xattrs": {b"user." + b"n" * 300: b""}},
    "large attributes": {"xattrs": {b"user.a": bytes(70_000)}},
    "nobody's uid": {"uid": NO_ID},
    "nobody's gid": {"gid": NO_ID},
    "a link to nowhere": {"kind": "symlink", "target": b"", "crcs": b"", "size_bytes": 0},
    "a zero byte in a target": {
        "kind": "symlink", "target": b"a\0", "crcs": b"", "size_bytes": 0,
    },
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_would_stop_a_recovery_is_refused_when_it_is_offered(what: str) -> None:
    with pytest.raises(Refusal) as caught:
        check(replica(b"a", b"x").__class__(**{**as_fields(replica(b"a", b"x")), **WRONG[what]}))
    assert caught.value.code in ("BadPath", "BadReplica") and not caught.value.retry
    assert len(str(caught.value)) < 1000 and str(caught.value).isprintable()


def as_fields(held: m.Replica) -> dict[str, object]:
    return {name: getattr(held, name) for name in held.__struct_fields__}


@pytest.mark.parametrize("changes", [
    {"xattrs": {b"user.a": bytes(70_000)}}, {"xattrs": {b"a\0": b""}}, {"uid": NO_ID},
])  # fmt: skip
@pytest.mark.trio
async def test_attributes_are_checked_too_when_they_come_alone(
    address: str, changes: dict[str, object]
) -> None:
    stream = await member(address)
    await stream.send(m.Offer(1, replica(b"a", b"")))
    await stream.send(m.Commit(1))
    attributes: dict[str, object] = {
        "mode": 0o644, "uid": 0, "gid": 0, "atime_ns": 0, "mtime_ns": 0, "xattrs": {}, **changes,
    }  # fmt: skip
    await stream.send(m.Attrs(2, VOLUME, b"a", **attributes))  # type: ignore[arg-type]
    while not isinstance(answer := (await stream.receive()).message, m.Refused):
        assert isinstance(answer, m.Need | m.Ack)
    assert (answer.id, answer.code, answer.retry) == (2, "BadReplica", False)
    await stream.aclose()


@pytest.mark.trio
async def test_a_peer_that_needs_more_than_there_is_is_left(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    async def greedy(transport: trio.SocketStream) -> None:
        from cachexfs.peers.greeting import accept

        stream, _ = await accept(transport, Identity("peer", SECRET))
        await stream.send(m.Welcome(1 << 40))
        with suppress(*BROKEN, Disconnected):
            while True:
                message, payload_bytes = await stream.receive()
                await stream.payload_into(memoryview(bytearray(payload_bytes)))
                if isinstance(message, m.Offer | m.Commit):
                    await stream.send(m.Need(message.id, [(0, 1 << 60)] * 1000))

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, greedy, [listener])
    owner = Owner(f"127.0.0.1:{listener.socket.getsockname()[1]}")
    owner.link.submit(put(b"a", bytes(100_000)))
    nursery.start_soon(owner.link.run)
    with trio.fail_after(5):
        while "needs more chunks than there are" not in str(owner.link.last_error):  # noqa: ASYNC110
            await trio.sleep(0.02)
    nursery.cancel_scope.cancel()


def test_the_register_is_full_by_bytes_too() -> None:
    register = Register(max_bytes=1 << 20)
    big = replica(b"f", b"", crcs=bytes(300_000))

    def entry(name: bytes) -> m.Entry:
        return m.Entry(name=name, stamp=1, replica=big)

    key = Key(VOLUME, 1)
    for name in (b"a", b"b", b"c", b"a"):
        register.put(key, entry(name), 0.0)
    with pytest.raises(Full):
        register.put(key, entry(b"d"), 0.0)
    register.forget(key, b"a", 1, 0.0)
    register.put(key, entry(b"d"), 0.0)


@pytest.mark.trio
async def test_a_reader_that_stops_reading_is_let_go(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that was stopped in the middle would keep its place, a thread and a file for ever."""
    monkeypatch.setattr("cachexfs.peers.serving.IDLE_S", 0.5)
    side = Side(tmp_path / "owner")
    node = side.captured(b"big", bytes(16 * CHUNK_BYTES))
    catalogue = Catalogue(side.tree, side.tier, "owner", VOLUME)
    identity = Identity("owner", SECRET)
    server = ReadServer(side.tree, side.tier, side.sums, catalogue, identity)
    done = trio.Event()

    async def handle(transport: trio.SocketStream) -> None:
        await server.handle(transport)
        done.set()

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, handle, [listener])
    address = f"127.0.0.1:{listener.socket.getsockname()[1]}"
    stream, _, _ = await connect(address, Identity("reader", SECRET), os.urandom(16), "owner")
    await stream.send(m.Read(1, node.ino, node.settled_at_ns, 0, 16))
    with trio.fail_after(5):
        await done.wait()
    await stream.aclose()
    nursery.cancel_scope.cancel()


@pytest.mark.trio
@pytest.mark.slow
async def test_what_a_hundred_members_can_make_a_peer_hold(
    nursery: trio.Nursery, address: str
) -> None:
    """Each sends as many and as large orders as it may, and never the content of the first.

    Both ends are in this process, so this is more than what the peer holds.
    """
    before_bytes = resident_bytes()
    streams = [await member(address, f"n{number}") for number in range(100)]
    for stream in streams:
        nursery.start_soon(greedily, stream)
    await trio.sleep(20)
    held_bytes = resident_bytes() - before_bytes
    print(f"100 greedy members: {held_bytes / 1e6:.0f} MB more resident")
    owner = Owner(address)
    nursery.start_soon(owner.link.run)
    assert await owner.finish(put(b"a", b"a"), within_s=20) == ["acked"]
    assert held_bytes < 2 << 30
    for stream in streams:
        await trio.aclose_forcefully(stream)
    nursery.cancel_scope.cancel()


async def greedily(stream: FrameStream) -> None:
    with suppress(*BROKEN, trio.ClosedResourceError):
        await stream.send(m.Offer(1, replica(b"never", b"x")))
        for number in range(2, MAX_LINE):
            attributes = {b"user.%d" % n: bytes(1000) for n in range(3000)}
            await stream.send(m.Attrs(number, VOLUME, b"a", 0, 0, 0, 0, 0, attributes))
        while True:
            await stream.send(m.Ping(1))
            await trio.sleep(1)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# --- the store ---------------------------------------------------------------------------------


@pytest.mark.trio
async def test_nobody_else_can_read_the_store(nursery: trio.Nursery, tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        with store_at(tmp_path / "store") as store:
            owner = Owner(await serve(nursery, store))
            nursery.start_soon(owner.link.run)
            await owner.finish(put(b"a", b"a"))
            part = store.offer(replica(b"part", b"x" * 10, version=2), b"s")
            modes = modes_below(tmp_path / "store")
            assert part is not None
            store.abandon(part)
            nursery.cancel_scope.cancel()
    finally:
        os.umask(old)
    assert {"", "data", "parts", "lock", "manifest.db", "data/1"} <= set(modes)
    assert {mode for path, mode in modes.items() if path in ("", "data", "parts")} == {0o700}
    assert {mode for path, mode in modes.items() if path not in ("", "data", "parts")} == {0o600}


def modes_below(top: Path) -> dict[str, int]:
    found = [top, *top.rglob("*")]
    return {
        str(each.relative_to(top)).strip("."): stat.S_IMODE(each.stat().st_mode) for each in found
    }


def test_a_store_that_was_open_to_others_is_closed(tmp_path: Path) -> None:
    Store(tmp_path / "store").close()
    for path in tmp_path.rglob("*"):
        path.chmod(0o777 if path.is_dir() else 0o666)
    Store(tmp_path / "store").close()
    assert set(modes_below(tmp_path / "store").values()) == {0o700, 0o600}


@pytest.mark.parametrize("name", ["data", "parts", "lock", "manifest.db"])
def test_a_link_in_place_of_the_stores_own_is_refused(tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir() if name in ("data", "parts") else outside.write_bytes(b"precious")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / name).symlink_to(outside)
    with pytest.raises(StoreUnusable):
        Store(tmp_path / "store")
    assert outside.is_dir() or outside.read_bytes() == b"precious"


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("name", ["", "data", "parts"])
def test_a_store_of_another_user_is_refused(tmp_path: Path, name: str) -> None:
    Store(tmp_path / "store").close()
    os.chown(tmp_path / "store" / name, 1234, -1)
    with pytest.raises(StoreUnusable, match="belongs to the user 1234"):
        Store(tmp_path / "store")


def test_a_link_under_the_name_of_a_content_is_not_followed(tmp_path: Path) -> None:
    """Nobody but the peer's user can put one there; and then it is an error, not a leak."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"s")
    with store_at(tmp_path / "store") as store:
        held = replica(b"a", b"x")
        part = store.offer(held, b"s")
        assert part is not None and part.write(0, memoryview(b"x"))
        from cachexfs.peers.batch import Put, Step

        assert store.apply([Step(b"s", 1, Put(held, part))]) == [None]
        (data,) = (tmp_path / "store/data").iterdir()
        data.unlink()
        data.symlink_to(secret)
        with pytest.raises(Refusal) as caught:
            store.open(VOLUME, b"a", 1)
        assert caught.value.code == "StoreFailed"
        with pytest.raises(Refusal):
            store.offer(replica(b"a", b"yy", version=2), b"s")
        again = replica(b"b", b"z", version=3)
        planted = tmp_path / "store/parts" / f"{part_name(again)}.part"
        planted.symlink_to(secret)
        with pytest.raises(Refusal):
            store.offer(again, b"s")
    assert secret.read_bytes() == b"s"


def part_name(held: m.Replica) -> str:
    from cachexfs.peers.replicas import content_name

    return content_name(held)


# --- what comes back ---------------------------------------------------------------------------


class NoContent:
    """Another's peer, which lists whatever it likes."""

    name = "odd"

    def __init__(self, *listed: m.Replica) -> None:
        self._listed = list(listed)

    async def list(self, volume: str, prefix: bytes = b"") -> list[m.Replica]:
        return self._listed

    async def fetch(
        self, held: m.Replica, first: int = 0, last: int | None = None
    ) -> AsyncIterator[tuple[int, bytes]]:
        yield 0, b"x"


@pytest.mark.trio
@pytest.mark.parametrize("what", WRONG)
async def test_a_holder_that_lists_nonsense_does_not_end_the_recovery(
    tmp_path: Path, what: str
) -> None:
    wrong = as_fields(replica(b"a", b"x")) | WRONG[what]
    holder = NoContent(m.Replica(**wrong), replica(b"b", b"x", mode=0o640))  # type: ignore[arg-type]
    result = await recover([holder], VOLUME, b"", DirectorySink(tmp_path / "to"))  # type: ignore[list-item]
    assert result.recovered == [b"b"] and len(result.refused) == 1
    assert os.listdir(tmp_path / "to") == ["b"]


@pytest.mark.root
@pytest.mark.trio
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
async def test_root_gives_owners_and_set_id_bits_back(tmp_path: Path) -> None:
    held = [
        replica(b"d", kind="directory", mode=0o2750, uid=1234, gid=2345),
        replica(b"d/f", b"x", mode=0o6755, uid=1234, gid=2345),
        replica(b"d/s", kind="symlink", target=b"f", uid=1234, gid=2345),
    ]
    assert (await recover([NoContent(*held)], VOLUME, b"", DirectorySink(tmp_path))).complete  # type: ignore[list-item]
    for name, mode in (("d", 0o2750), ("d/f", 0o6755), ("d/s", 0o777)):
        found = (tmp_path / name).lstat()
        assert (found.st_uid, found.st_gid, found.st_mode & 0o7777) == (1234, 2345, mode)


@pytest.mark.trio
async def test_set_id_bits_of_somebody_else_do_not_become_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError

    held = replica(b"f", b"x", mode=0o6755, uid=1234, gid=2345)
    monkeypatch.setattr(os, "chown", refused)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "getegid", lambda: 1000)
    await recover([NoContent(held)], VOLUME, b"", DirectorySink(tmp_path))  # type: ignore[list-item]
    assert (tmp_path / "f").stat().st_mode & 0o7777 == 0o755
    assert owned(Changes(0o6755), 1234, 2345).mode == 0o755
    assert owned(Changes(0o6755), 1000, 1000).mode == 0o6755
    assert owned(Changes(0o42755), 1000, 2345).mode == 0o42755, "a directory passes its group on"


def test_the_manifest_is_never_readable_by_others_not_even_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    chmod = Path.chmod
    monkeypatch.setattr(Path, "chmod", lambda path, mode: seen.append(path) or chmod(path, mode))
    old = os.umask(0)
    try:
        Manifest(tmp_path / "manifest.db").close()
    finally:
        os.umask(old)
    assert seen == [] and stat.S_IMODE((tmp_path / "manifest.db").stat().st_mode) == 0o600
