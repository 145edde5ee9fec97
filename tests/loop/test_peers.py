"""A sender, a real store and TCP between them."""

from __future__ import annotations

import logging
import os
import ssl
from pathlib import Path

import pytest
import trio
import trustme
import zstandard
from peering import SECRET, VOLUME, Owner, Wire, put, replica, serve, store_at

from cachexfs.durability.checksum import CHUNK_BYTES
from cachexfs.peers import messages as m
from cachexfs.peers import orders
from cachexfs.peers.greeting import Identity, connect
from cachexfs.peers.messages import Ping
from cachexfs.peers.orders import Put
from cachexfs.peers.reader import PeerReader, ReplicaUnreadable, open_reader
from cachexfs.peers.stream import BROKEN, Disconnected
from cachexfs.peers.wire import Connection

pytestmark = pytest.mark.trio

BIG = os.urandom(3 * CHUNK_BYTES + 12345)


async def contents(reader: PeerReader) -> dict[bytes, bytes]:
    """All files that a peer has, by path."""
    files = {}
    for held in await reader.list(VOLUME):
        if held.kind == "file":
            files[held.path] = b"".join([data async for _, data in reader.fetch(held)])
    return files


async def held_at(address: str, **more: object) -> dict[bytes, bytes]:
    async with open_reader(address, "asker", SECRET, name="peer", **more) as reader:  # type: ignore[arg-type]
        return await contents(reader)


def damage(store: Path, place: int) -> None:
    """Flip a bit of the only file that a store has."""
    (file,) = (store / "data").iterdir()
    with file.open("r+b") as data:
        data.seek(place)
        byte = data.read(1)[0]
        data.seek(place)
        data.write(bytes([byte ^ 0x10]))


@pytest.mark.parametrize("compression", ["off", "auto", 3])
async def test_what_is_acknowledged_can_be_read_back(
    nursery: trio.Nursery, tmp_path: Path, compression: str | int
) -> None:
    files = {b"a": b"", b"d/\xff\xfe": b"small", b"big": BIG, b"zeros": bytes(2 * CHUNK_BYTES + 1)}
    with store_at(tmp_path / "store") as store:
        address = await serve(nursery, store)
        owner = Owner(address, compression=compression)
        nursery.start_soon(owner.link.run)
        puts = [put(path, content) for path, content in files.items()]
        assert await owner.finish(*puts) == ["acked"] * 4
        assert [order for order, _ in owner.done] == puts
        assert (owner.link.state, owner.link.behind_bytes) == ("up", 0)
        assert await held_at(address) == files
        nursery.cancel_scope.cancel()


async def test_orders_are_carried_out_in_order(nursery: trio.Nursery, tmp_path: Path) -> None:
    with store_at(tmp_path / "store") as store:
        address = await serve(nursery, store)
        owner = Owner(address)
        nursery.start_soon(owner.link.run)
        await owner.finish(
            put(b"d/x.tmp", BIG),
            put(b"d/y", b"y"),
            orders.Rename(VOLUME, b"d/x.tmp", b"d/x"),
            orders.Link(VOLUME, b"d/x", b"d/z"),
            orders.Rename(VOLUME, b"d/y", b"d/z", exchange=True),
            orders.Rename(VOLUME, b"d", b"e"),
            orders.Unlink(VOLUME, b"e/x", at_ns=9),
            orders.Attrs(VOLUME, b"e/y", 0o600, 1, 2, 3, 4, {b"user.a": b"b"}),
            orders.Durable(VOLUME, b"e/y", 1),
        )
        assert set(owner.outcomes) == {"acked"}
        assert await held_at(address) == {b"e/y": BIG, b"e/z": b"y"}
        held = store.listing(VOLUME, b"e/y", b"")[0]
        assert (held.mode, held.xattrs, held.durable) == (0o600, {b"user.a": b"b"}, True)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("cut", [1, 300, 70_000, CHUNK_BYTES + 5_000, 2 * CHUNK_BYTES + 777_777])
async def test_a_broken_transfer_goes_on_where_it_stopped(
    nursery: trio.Nursery, tmp_path: Path, cut: int
) -> None:
    with store_at(tmp_path / "store") as store:
        address = await serve(nursery, store)
        wire = Wire(address, cut_after=[cut])
        owner = Owner(await wire.start(nursery))
        nursery.start_soon(owner.link.run)
        assert await owner.finish(put(b"big", BIG)) == ["acked"]
        assert await held_at(address) == {b"big": BIG}
        assert wire.connections == 2
        whole_chunks = max(0, cut - 5_000) // CHUNK_BYTES
        assert wire.passed_bytes <= cut + len(BIG) - whole_chunks * CHUNK_BYTES + 5_000
        nursery.cancel_scope.cancel()


async def test_an_exchange_whose_answer_is_lost_is_done_once(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    with store_at(tmp_path / "store") as store:
        address = await serve(nursery, store)
        wire = Wire(address, lose_answer_to=b"Rename")
        owner = Owner(await wire.start(nursery))
        nursery.start_soon(owner.link.run)
        await owner.finish(put(b"a", b"a"), put(b"b", b"b"))
        exchange = orders.Rename(VOLUME, b"a", b"b", exchange=True)
        assert await owner.finish(exchange) == ["acked"] * 3
        assert await held_at(address) == {b"a": b"b", b"b": b"a"}
        assert wire.connections == 2
        nursery.cancel_scope.cancel()


async def test_a_peer_that_freezes_is_left_and_asked_again(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cachexfs.peers.sender.ANSWER_S", 2.0)
    monkeypatch.setattr("cachexfs.peers.sender.PING_S", 0.1)
    with store_at(tmp_path / "store") as store:
        address = await serve(nursery, store)
        wire = Wire(address, freeze_after=CHUNK_BYTES)
        owner = Owner(await wire.start(nursery))
        nursery.start_soon(owner.link.run)
        assert await owner.finish(put(b"big", BIG * 4)) == ["acked"]
        await trio.sleep(1.0)
        assert (wire.connections, owner.link.state) == (2, "up")
        nursery.cancel_scope.cancel()


async def test_a_peer_that_lost_its_store_is_noticed(nursery: trio.Nursery, tmp_path: Path) -> None:
    forgotten = trio.Event()
    async with trio.open_nursery() as first:
        with store_at(tmp_path / "store") as store:
            address = await serve(first, store)
            owner = Owner(address, on_forgotten=forgotten.set)
            nursery.start_soon(owner.link.run)
            await owner.finish(put(b"a", b"a"))
            first.cancel_scope.cancel()
            await trio.sleep(0.1)
    with store_at(tmp_path / "another") as store:
        await serve(nursery, store, port=int(address.rpartition(":")[2]))
        with trio.fail_after(5):
            await forgotten.wait()
        assert await owner.finish(put(b"b", b"b")) == ["acked", "acked"]
        nursery.cancel_scope.cancel()


async def test_a_flipped_byte_is_found_and_sent_again(
    nursery: trio.Nursery, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def flip(data: bytes, offset: int) -> bytes:
        place = CHUNK_BYTES + 500_000 - offset
        if not 0 <= place < len(data):
            return data
        return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]

    with store_at(tmp_path / "store") as store, caplog.at_level(logging.WARNING):
        address = await serve(nursery, store)
        owner = Owner(await Wire(address, bend=flip).start(nursery))
        nursery.start_soon(owner.link.run)
        outcomes = await owner.finish(put(b"big", BIG), orders.Rename(VOLUME, b"big", b"b"))
        assert outcomes == ["acked", "acked"]
        assert await held_at(address) == {b"b": BIG}
        assert [r.message for r in caplog.records] == [
            "chunk 1 of b'big' from owner is damaged: asked again"
        ]
        nursery.cancel_scope.cancel()


async def test_content_that_changed_is_dropped_and_later_orders_go_on(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    with store_at(tmp_path / "store") as store:
        address = await serve(nursery, store)
        owner = Owner(address)
        nursery.start_soon(owner.link.run)
        changed = put(b"big", bytes(len(BIG)))
        lie = Put(replica(b"big", BIG), changed.open_content)
        small_lie = Put(replica(b"small", b"abc"), put(b"", b"abd").open_content)
        gone = Put(replica(b"gone", b"abc"), lambda: None)
        done = await owner.finish(lie, put(b"a", b"a"), small_lie, gone, put(b"b", b"b"))
        assert done == ["dropped", "acked", "dropped", "dropped", "acked"]
        assert [outcome.code for _, outcome in owner.done] == ["changed", "", "changed", "gone", ""]
        assert await held_at(address) == {b"a": b"a", b"b": b"b"}
        nursery.cancel_scope.cancel()


async def test_only_chunks_that_differ_from_the_version_held_are_sent(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    with store_at(tmp_path / "store") as store:
        address = await serve(nursery, store)
        wire = Wire(address)
        owner = Owner(await wire.start(nursery))
        nursery.start_soon(owner.link.run)
        newer = BIG[:CHUNK_BYTES] + b"!" + BIG[CHUNK_BYTES + 1 :]
        await owner.finish(put(b"big", BIG))
        before = wire.passed_bytes
        await owner.finish(put(b"big", newer, version=2))
        assert wire.passed_bytes - before < CHUNK_BYTES + 5_000
        assert await held_at(address) == {b"big": newer}
        assert len(os.listdir(tmp_path / "store" / "data")) == 1
        nursery.cancel_scope.cancel()


async def test_many_small_files_share_commits(nursery: trio.Nursery, tmp_path: Path) -> None:
    with store_at(tmp_path / "store") as store:
        groups = []
        apply = store.apply
        store.apply = lambda steps: groups.append(len(steps)) or apply(steps)  # type: ignore[method-assign,assignment,func-returns-value]
        address = await serve(nursery, store)
        owner = Owner(address)
        files = {b"%d" % n: b"x" * n for n in range(300)}
        for path, content in files.items():
            owner.link.submit(put(path, content))
        nursery.start_soon(owner.link.run)
        await owner.until(300)
        assert set(owner.outcomes) == {"acked"}
        assert await held_at(address) == files
        assert sum(groups) == 300 and len(groups) < 100
        nursery.cancel_scope.cancel()


async def test_a_wrong_secret_opens_nothing_and_both_sides_say_so(
    nursery: trio.Nursery, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with store_at(tmp_path / "store") as store:
        address = await serve(nursery, store, secret=b"another secret here")
        owner = Owner(address)
        owner.link.submit(put(b"a", b"a"))
        nursery.start_soon(owner.link.run)
        await trio.sleep(0.3)
        assert owner.link.state == "down"
        assert "does not have the same secret" in str(owner.link.last_error)
        assert "does not have the same secret" in caplog.text
        assert owner.done == [] and store.volumes() == []
        nursery.cancel_scope.cancel()


async def _raw(address: str, data: bytes) -> bytes:
    """What a peer answers to these bytes until it closes."""
    host, _, port = address.rpartition(":")
    stream = await trio.open_tcp_stream(host, int(port))
    async with stream:
        received = b""
        try:
            await stream.send_all(data)
            while part := await stream.receive_some(65536):
                received += part
        except trio.BrokenResourceError:
            pass
        return received


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (Connection(version=1).preface(), "speaks version 1 of the peers' protocol, this side ve"),
        (Connection().preface() + b"\xff" * 8, "a header of 4294967295 bytes: at most 4096"),
        (Connection().preface() + Connection().send(Ping(1)), "Ping makes no sense"),
        (b"GET / HTTP/1.1\r\n\r\n", "does not speak the protocol of CacheX-FS"),
    ],
)
async def test_a_stranger_is_turned_away_with_a_sentence(
    nursery: trio.Nursery,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    data: bytes,
    sentence: str,
) -> None:
    with store_at(tmp_path / "store") as store:
        address = await serve(nursery, store)
        with trio.fail_after(5):
            await _raw(address, data)
        assert sentence in caplog.text
        nursery.cancel_scope.cancel()


SMALL = replica(b"a", b"abc")


@pytest.mark.parametrize(
    ("frames", "sentence"),
    [
        ([(m.Data(9, 0, 3), b"abc")], "9 was not offered"),
        ([(m.Commit(9), b"")], "9 was not offered"),
        ([(m.Offer(1, SMALL), b""), (m.Data(1, 7, 3), b"abc")], "chunk 7 of a file of 3 bytes"),
        ([(m.Offer(1, SMALL), b""), (m.Data(1, 0, 9), b"abc")], "chunk 0 has 3 bytes, not 9"),
        ([(m.Offer(2, SMALL), b""), (m.Offer(2, SMALL), b"")], "order 2 comes after order 2"),
        ([(m.Ack(1), b"")], "Ack makes no sense here"),
        (
            [(m.Offer(n, replica(b"%d" % n, b"abc")), b"") for n in range(1, 400)],
            "more than 256 files at a time",
        ),
    ],
)
async def test_a_member_that_breaks_the_protocol_loses_its_connection_only(
    nursery: trio.Nursery,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    frames: list[tuple[m.Message, bytes]],
    sentence: str,
) -> None:
    with store_at(tmp_path / "store") as store:
        address = await serve(nursery, store)
        stream, _, _ = await connect(address, Identity("odd", SECRET), b"s" * 16, "peer")
        with trio.fail_after(5), pytest.raises((Disconnected, *BROKEN)):
            for message, payload in frames:
                await stream.send(message, payload)
            while True:
                await stream.receive()
        await stream.aclose()
        assert sentence in caplog.text
        owner = Owner(address)
        nursery.start_soon(owner.link.run)
        assert await owner.finish(put(b"a", b"abc")) == ["acked"]
        nursery.cancel_scope.cancel()


async def test_what_unpacks_to_more_than_a_chunk_is_cut_and_asked_again(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(64 << 20))
    held = replica(b"a", bytes(CHUNK_BYTES + 1))
    with store_at(tmp_path / "store") as store:
        address = await serve(nursery, store)
        stream, _, _ = await connect(address, Identity("odd", SECRET), b"s" * 16, "peer")
        await stream.send(m.Offer(1, held))
        await stream.send(m.Data(1, 0, CHUNK_BYTES), bomb)
        await stream.send(m.Data(1, 1, 1), b"x")
        await stream.send(m.Commit(1))
        with trio.fail_after(5):
            assert (await stream.receive()).message == m.Need(1, [(0, 2)])
            assert (await stream.receive()).message == m.Need(1, [(1, 2)])
        await stream.aclose()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("path", [b"../x", b"/x", b"a/../../x", b"a//b", b"", b"a/\0", b"a" * 300])
async def test_a_path_that_leaves_the_store_is_refused(
    nursery: trio.Nursery, tmp_path: Path, path: bytes
) -> None:
    with store_at(tmp_path / "store") as store:
        address = await serve(nursery, store)
        owner = Owner(address)
        nursery.start_soon(owner.link.run)
        await owner.finish(
            put(path, b"x"),
            put(path, BIG),
            put(b"ok", b"ok"),
            orders.Rename(VOLUME, b"ok", path),
            orders.Unlink(VOLUME, path, 5),
        )
        kinds = ["refused", "refused", "acked", "refused", "refused"]
        assert owner.outcomes == kinds
        assert owner.done[0][1].code == "BadPath"
        assert await held_at(address) == {b"ok": b"ok"}
        assert os.listdir(tmp_path) == ["store"]
        nursery.cancel_scope.cancel()


async def test_a_full_store_keeps_order_and_goes_on_when_there_is_room(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    with store_at(tmp_path / "store", 2_000_000) as store:
        address = await serve(nursery, store)
        owner = Owner(address)
        nursery.start_soon(owner.link.run)
        await owner.finish(put(b"old", bytes(1_500_000)))
        owner.link.submit(put(b"new", bytes(1_500_001)))
        owner.link.submit(put(b"small", b"s"))
        await trio.sleep(0.3)
        assert owner.outcomes == ["acked"]
        assert "StoreFull" in str(owner.link.last_error) and owner.link.state != "up"
        other = Owner(address)
        nursery.start_soon(other.link.run)
        await other.finish(orders.Durable(VOLUME, b"old", 1))
        await owner.until(3)
        assert owner.outcomes == ["acked"] * 3
        assert set(await held_at(address)) == {b"new", b"small"}
        nursery.cancel_scope.cancel()


async def test_a_damaged_chunk_is_never_served(nursery: trio.Nursery, tmp_path: Path) -> None:
    with store_at(tmp_path / "store") as store:
        address = await serve(nursery, store)
        owner = Owner(address)
        nursery.start_soon(owner.link.run)
        await owner.finish(put(b"big", BIG))
        damage(tmp_path / "store", CHUNK_BYTES + 5)
        got = []
        async with open_reader(address, "asker", SECRET) as reader:
            held = (await reader.list(VOLUME))[0]
            with pytest.raises(ReplicaUnreadable, match="on peer: chunk 1 is damaged") as caught:
                async for index, _ in reader.fetch(held):
                    got.append(index)
            assert (caught.value.chunk, got) == (1, [0])
            assert [i async for i, _ in reader.fetch(held, 2)] == [2, 3]
        nursery.cancel_scope.cancel()


async def test_mutual_tls_carries_files_and_turns_away_who_has_no_certificate(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    authority = trustme.CA()
    server, client = (
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH),
        ssl.create_default_context(),
    )
    cert = authority.issue_cert("127.0.0.1")
    for context in (server, client):
        cert.configure_cert(context)
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    stranger = ssl.create_default_context()
    authority.configure_trust(stranger)
    with store_at(tmp_path / "store") as store:
        address = await serve(nursery, store, ssl_context=server)
        owner = Owner(address, ssl_context=client)
        bare = Owner(address, ssl_context=stranger)
        nursery.start_soon(owner.link.run)
        nursery.start_soon(bare.link.run)
        bare.link.submit(put(b"no", b"no"))
        assert await owner.finish(put(b"big", BIG), put(b"s", b"s")) == ["acked", "acked"]
        assert await held_at(address, ssl_context=client) == {b"big": BIG, b"s": b"s"}
        assert bare.done == [] and bare.link.last_error
        nursery.cancel_scope.cancel()


async def test_a_link_that_carries_nothing_any_more_is_down_though_pings_can_be_sent(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cachexfs.peers.sender.PING_S", 0.1)
    monkeypatch.setattr("cachexfs.peers.sender.ANSWER_S", 1.0)
    with store_at(tmp_path / "store") as store:
        wire = Wire(await serve(nursery, store))
        owner = Owner(await wire.start(nursery))
        nursery.start_soon(owner.link.run)
        assert await owner.finish(put(b"f", b"f")) == ["acked"]
        wire._freeze_after = 0
        owner.link.submit(put(b"g", b"g"))
        with trio.fail_after(10):  # it connects again, and all of it comes
            await owner.until(2)
        assert wire.connections == 2
        nursery.cancel_scope.cancel()
