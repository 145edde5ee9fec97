"""Reading what other nodes hold: several holders, one that stalls, one that lies."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest
import trio
from peering import SECRET, VOLUME, Owner, address_of, put, store_at

from cachexfs.durability.actions import Slot
from cachexfs.durability.checksum import CHUNK_BYTES
from cachexfs.durability.life import Life, Settled
from cachexfs.peers import fetching
from cachexfs.peers.catalogue import Catalogue
from cachexfs.peers.fetching import LIMITS_S, Fetching
from cachexfs.peers.greeting import Identity, accept
from cachexfs.peers.messages import Welcome
from cachexfs.peers.server import PeerServer
from cachexfs.peers.serving import ReadServer
from cachexfs.ram.journal import Journal
from cachexfs.ram.node import Node
from cachexfs.ram.remote import Remote
from cachexfs.ram.room import Room
from cachexfs.ram.sums import Sums
from cachexfs.ram.tier import Tier
from cachexfs.ram.tree import ROOT, Tree

pytestmark = pytest.mark.trio
BIG = os.urandom(5 * CHUNK_BYTES + 77)


class Side:
    """A mount's tree and RAM tier."""

    def __init__(self, base: Path) -> None:
        base.mkdir()
        self.tree = Tree(Journal(base / "journal.db"))
        self.tier = Tier(base, 1 << 30, pages="", private=False)
        self.sums = Sums(self.tree, self.tier)
        self.room = Room(self.tree, self.tier, lambda node: None)

    def captured(self, name: bytes, content: bytes) -> Node:
        node = self.tree.new("file", Slot(ROOT, name))
        node.blob, fd = self.tier.create()
        os.write(fd, content)
        os.close(fd)
        node.life, node.settled_at_ns = Life(), 1234
        node.life.handle(Settled(), 0.0)
        return node


class Stage:
    """One who reads, an owner, and members `p` and `q` that hold a replica."""

    def __init__(self, nursery: trio.Nursery, base: Path, stack: ExitStack) -> None:
        self.nursery = nursery
        self.base = base
        self.stack = stack
        self.reader, self.owner = Side(base / "reader"), Side(base / "owner")
        self.addresses: dict[str, str] = {}
        self.fetching = Fetching(
            self.reader.tier, self.reader.room, Identity("reader", SECRET), VOLUME,
            lambda: self.addresses,
        )  # fmt: skip

    async def start(self) -> None:
        await self.nursery.start(self.fetching.run)

    async def hold(self, name: str, content: bytes) -> None:
        """Member `name` holds the content, version 1, at path `f`."""
        store = self.stack.enter_context(store_at(self.base / name))
        server = PeerServer(store, "peer", SECRET)
        owner = Owner(await self.listen(server.handle))
        self.nursery.start_soon(owner.link.run)
        assert await owner.finish(put(b"f", content)) == ["acked"]
        server.node = name
        self.addresses[name] = owner.link.address

    async def silent(self, name: str) -> None:
        """A member that welcomes and then says nothing."""

        async def handle(transport: trio.SocketStream) -> None:
            stream, _ = await accept(transport, Identity(name, SECRET))
            await stream.send(Welcome(0))
            await trio.sleep_forever()

        self.addresses[name] = await self.listen(handle)

    async def slow(self, name: str, pause_s: float) -> None:
        """What is asked of member `name` comes in pieces of 64 KiB at most, with pauses."""
        host, _, port = self.addresses[name].rpartition(":")

        async def pass_on(source: trio.SocketStream, sink: trio.SocketStream, s: float) -> None:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                while data := await source.receive_some(65536):
                    await sink.send_all(data)
                    await trio.sleep(s)

        async def handle(reader: trio.SocketStream) -> None:
            member = await trio.open_tcp_stream(host, int(port))
            async with member, trio.open_nursery() as nursery:
                nursery.start_soon(pass_on, member, reader, pause_s)
                await pass_on(reader, member, 0.0)
                nursery.cancel_scope.cancel()

        self.addresses[name] = await self.listen(handle)

    async def serve_owner(self) -> str:
        side = self.owner
        catalogue = Catalogue(side.tree, side.tier, "owner", VOLUME)
        identity = Identity("owner", SECRET)
        server = ReadServer(side.tree, side.tier, side.sums, catalogue, identity)
        return await self.listen(server.handle)

    async def listen(self, handle: object) -> str:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        await self.nursery.start(partial(trio.serve_listeners, handle, listeners))
        return address_of(listeners[0])

    def node(self, content: bytes = BIG, *holders: str, **more: object) -> Node:
        fields: dict[str, object] = {
            "kind": "file", "owner": "owner", "stamp": 1, "version": 1, "path": b"f",
            "size_bytes": len(content), "holders": holders, "ino": 5, "mode": 0o640,
        }  # fmt: skip
        remote = Remote(**{**fields, **more})  # type: ignore[arg-type]
        return self.reader.tree.elsewhere(remote, Slot(ROOT, b"f"))

    @property
    def kept_bytes(self) -> int:
        return sum(p.stat().st_blocks * 512 for p in (self.base / "reader/data").iterdir())


@pytest.fixture
async def stage(nursery: trio.Nursery, tmp_path: Path) -> AsyncIterator[Stage]:
    with ExitStack() as stack:
        made = Stage(nursery, tmp_path, stack)
        await made.start()
        yield made
        nursery.cancel_scope.cancel()


async def test_two_holders_share_the_work(stage: Stage) -> None:
    for name in "pq":
        await stage.hold(name, BIG)
    node = stage.node(BIG, "p", "q")
    assert await stage.fetching.read(node, 0, len(BIG)) == BIG
    assert await stage.fetching.read(node, CHUNK_BYTES - 3, 9) == BIG[CHUNK_BYTES - 3 :][:9]
    assert await stage.fetching.read(node, len(BIG), 9) == b""
    assert stage.fetching.chunks_from == {"p": 3, "q": 3}


async def test_a_read_waits_for_its_own_chunks_only(stage: Stage) -> None:
    await stage.hold("p", BIG)
    await stage.silent("q")
    node = stage.node(BIG, "p", "q")
    begun = trio.current_time()
    assert await stage.fetching.read(node, 0, 100) == BIG[:100]  # the first chunk is p's
    assert trio.current_time() - begun < LIMITS_S[0] / 2
    assert await stage.fetching.read(node, 0, len(BIG)) == BIG
    assert trio.current_time() - begun < 2 * LIMITS_S[0]  # q's chunks fail at the same time
    begun = trio.current_time()
    again = stage.node(BIG, "p", "q", ino=6, stamp=2)
    assert await stage.fetching.read(again, 0, len(BIG)) == BIG
    assert trio.current_time() - begun < LIMITS_S[0] / 2  # q is asked last now


async def test_who_goes_on_sending_is_waited_for(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "LIMITS_S", (0.3, 0.3))
    await stage.hold("p", BIG)
    await stage.slow("p", 0.01)  # a chunk takes twice as long as its holder may be silent
    begun = trio.current_time()
    assert await stage.fetching.read(stage.node(BIG, "p"), 0, len(BIG)) == BIG
    assert trio.current_time() - begun > 0.6
    assert stage.fetching.chunks_from == {"p": 6}


async def test_a_damaged_replica_is_never_served(stage: Stage) -> None:
    for name in "pq":
        await stage.hold(name, BIG)
    (file,) = (stage.base / "q" / "data").iterdir()
    data = bytearray(file.read_bytes())
    for index in range(0, len(BIG), CHUNK_BYTES):
        data[index] ^= 1
    file.write_bytes(data)
    assert await stage.fetching.read(stage.node(BIG, "p", "q"), 0, len(BIG)) == BIG
    with pytest.raises(OSError, match="q"):
        await stage.fetching.read(stage.node(BIG, "q", stamp=2, ino=9), 0, 1)


async def test_the_owner_serves_what_it_has_captured(stage: Stage) -> None:
    mine = stage.owner.captured(b"f", BIG)
    address = await stage.serve_owner()
    node = stage.node(BIG, ino=mine.ino, version=1234, address=address)
    assert await stage.fetching.read(node, 0, len(BIG)) == BIG
    assert stage.fetching.chunks_from == {"owner": 6}
    old = stage.node(BIG, ino=mine.ino, version=1233, address=address)
    with pytest.raises(OSError, match="not here"):
        await stage.fetching.read(old, 0, 1)


async def test_nobody_to_ask_is_an_error_at_once(stage: Stage) -> None:
    with pytest.raises(OSError, match="nobody"):
        await stage.fetching.read(stage.node(BIG), 0, 1)
    assert await stage.fetching.read(stage.node(b"", "p", ino=8), 0, 1) == b""


async def test_what_was_fetched_gives_way_and_comes_again(stage: Stage) -> None:
    await stage.hold("p", BIG)
    node = stage.node(BIG, "p")
    assert await stage.fetching.read(node, 0, len(BIG)) == BIG
    assert stage.kept_bytes >= len(BIG)
    stage.fetching.give_up()
    assert stage.kept_bytes == 0
    assert await stage.fetching.read(node, 5, 10) == BIG[5:15]
    stage.reader.tier.limit_bytes = 0  # no room at all: read through
    stage.fetching.give_up()
    assert await stage.fetching.read(node, 0, len(BIG)) == BIG
    assert stage.kept_bytes == 0
    stage.fetching.forget(node.ino)
    assert not list((stage.base / "reader/data").iterdir())


async def test_the_whole_of_it_can_be_taken_over(stage: Stage, tmp_path: Path) -> None:
    await stage.hold("p", BIG)
    with (tmp_path / "copy").open("wb") as file:
        await stage.fetching.copy_to(stage.node(BIG, "p"), file.fileno())
    assert (tmp_path / "copy").read_bytes() == BIG
