"""A live peer against random bytes, bent conversations and members that say anything at all.

Each run tries others; `CACHEXFS_FUZZ=500 python -m pytest tests/loop/test_peer_fuzz.py --timeout 0`
tries so many of each kind.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from peering import SECRET, VOLUME, Owner, Wire, address_of, orders, put, serve, store_at
from test_fetching import Side

from cachexfs import claims
from cachexfs.peers import messages as m
from cachexfs.peers.adoption import Adoption
from cachexfs.peers.catalogue import Catalogue
from cachexfs.peers.greeting import Identity, connect
from cachexfs.peers.reader import open_reader
from cachexfs.peers.serving import ReadServer
from cachexfs.peers.store import Store
from cachexfs.peers.stream import BROKEN, Disconnected
from cachexfs.peers.wire import Connection, ProtocolError
from cachexfs.ram.node import Node
from cachexfs.recovery import DirectorySink, recover
from tests.any_message import any_message, offers

few = settings(
    max_examples=int(os.environ.get("CACHEXFS_FUZZ", "10")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
Attack = Callable[[str, Store, trio.Nursery], Awaitable[None]]


def survived(attack: Attack, caplog: pytest.LogCaptureFixture) -> None:
    """Run an attack on a peer of its own; another member must be served as if nothing happened."""
    caplog.clear()
    with tempfile.TemporaryDirectory() as directory, caplog.at_level(logging.ERROR):
        trio.run(partial(_attacked, attack, Path(directory)))
    defects = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert defects == []


async def _attacked(attack: Attack, directory: Path) -> None:
    with store_at(directory / "store") as store:
        async with trio.open_nursery() as nursery:
            address = await serve(nursery, store)
            owner = Owner(address)
            nursery.start_soon(owner.link.run)
            await owner.finish(put(b"ours/a", b"a", volume="ours"))
            await attack(address, store, nursery)
            await owner.finish(put(b"ours/b", b"b", volume="ours"), within_s=10)
            assert owner.outcomes == ["acked", "acked"]
            async with open_reader(address, "asker", SECRET, name="peer") as reader:
                assert [each.path for each in await reader.list("ours")][-1] == b"ours/b"
            nursery.cancel_scope.cancel()


async def talk(address: str, data: bytes) -> None:
    host, _, port = address.rpartition(":")
    stream = await trio.open_tcp_stream(host, int(port))
    with suppress(*BROKEN), trio.move_on_after(0.03):
        await stream.send_all(data)
        while await stream.receive_some(65536):
            pass
    await trio.aclose_forcefully(stream)


@few
@given(st.lists(st.binary(max_size=200), max_size=3), st.booleans())
def test_random_bytes(caplog: pytest.LogCaptureFixture, many: list[bytes], greet: bool) -> None:
    async def attack(address: str, store: Store, nursery: trio.Nursery) -> None:
        for data in many:
            await talk(address, (Connection().preface() if greet else b"") + data)

    survived(attack, caplog)


@few
@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 255)), min_size=1, max_size=4))
def test_a_bent_conversation(
    caplog: pytest.LogCaptureFixture, bends: list[tuple[int, int]]
) -> None:
    def bend(data: bytes, offset: int) -> bytes:
        bent = bytearray(data)
        for place, with_ in bends:
            if 0 <= place - offset < len(bent):
                bent[place - offset] ^= with_
        return bytes(bent)

    async def attack(address: str, store: Store, nursery: trio.Nursery) -> None:
        owner = Owner(await Wire(address, bend=bend).start(nursery))
        for order in (
            put(b"x", b"x" * 900), orders.Rename(VOLUME, b"x", b"y"), put(b"z", bytes(900)),
        ):  # fmt: skip
            owner.link.submit(order)
        nursery.start_soon(owner.link.run)
        await trio.sleep(0.05)
        # Whatever came through is whole, and was ordered by the owner.
        assert {each.path for each in store.listing(VOLUME, b"", b"")} <= {b"x", b"y", b"z"}

    survived(attack, caplog)


def plausible(message: m.Message, source: Path) -> m.Message:
    """Of a volume that exists, where it was "v"; an offer without content passes as to its size."""
    changes: dict[str, object] = {}
    if getattr(message, "volume", "") == "v":
        changes["volume"] = str(source)
    if isinstance(message, m.Offer):
        replica = msgspec.structs.replace(message.replica, size_bytes=0, crcs=b"")
        if replica.volume == "v":
            replica = msgspec.structs.replace(replica, volume=str(source))
        changes["replica"] = replica
    return msgspec.structs.replace(message, **changes)


TO_A_PEER = (
    m.Offer, m.Commit, m.Rename, m.Unlink, m.Link, m.Attrs, m.Durable, m.List, m.Fetch,
    m.Register, m.Forget, m.Find, m.FindAll, m.Volumes, m.Withdraw, m.Scrap,
)  # fmt: skip


@few
@given(st.lists(any_message(TO_A_PEER) | offers("v") | offers("w"), max_size=12))
def test_a_member_that_says_anything(
    caplog: pytest.LogCaptureFixture, said: list[m.Message]
) -> None:
    survived(partial(_say_and_recover, said), caplog)


@few
@given(any_message())
def test_a_member_that_says_one_thing(caplog: pytest.LogCaptureFixture, said: m.Message) -> None:
    survived(partial(_say_and_recover, [said]), caplog)


async def _say_and_recover(
    said: list[m.Message], address: str, store: Store, nursery: trio.Nursery
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "source"
        await _say([plausible(message, source) for message in said], address)
        to = Path(directory) / "to"
        async with open_reader(address, "asker", SECRET, name="peer") as reader:
            for volume in store.volumes():
                await recover([reader], volume, b"", DirectorySink(to))
        await _adopt(store, source)
        assert set(os.listdir(directory)) <= {"source", "to", "adopted.json"}


async def _say(said: list[m.Message], address: str, name: str = "peer") -> None:
    stream, _, _ = await connect(address, Identity("odd", SECRET), b"s" * 16, name)
    with suppress(*BROKEN, Disconnected, ProtocolError), trio.move_on_after(0.3):
        numbers = iter(range(1, 1 << 20))
        for message in said:
            if isinstance(message, m.Offer | m.Rename | m.Unlink | m.Link | m.Attrs | m.Durable):
                message = msgspec.structs.replace(message, id=next(numbers))
            await stream.send(message)
            if isinstance(message, m.Offer):
                await stream.send(m.Commit(message.id))
        await stream.send(m.Ping(1))
        while not isinstance((await stream.receive()).message, m.Pong):
            pass
    await stream.aclose()


async def _adopt(store: Store, source: Path) -> None:
    """The owner is taken for dead at once, and its files are committed."""
    os.makedirs(source)
    claims.mark(source)
    report = source.parent / "adopted.json"
    limiter = trio.CapacityLimiter(1)
    adoption = Adoption(store, "peer", {}, lambda volume: None, report, -1.0, limiter)
    await adoption.look()


TO_AN_OWNER = (m.Ping, m.Describe, m.Read, m.List, m.Fetch, m.Offer, m.Data, m.Volumes, m.Register)


@few
@given(st.lists(any_message(TO_AN_OWNER), max_size=12), st.binary(max_size=40))
def test_a_mount_that_others_read_from(
    caplog: pytest.LogCaptureFixture, said: list[m.Message], noise: bytes
) -> None:
    async def attacked(directory: Path) -> None:
        side = Side(directory / "owner")
        node = side.captured(b"d", b"content")
        catalogue = Catalogue(side.tree, side.tier, "owner", "v")
        reads = ReadServer(side.tree, side.tier, side.sums, catalogue, Identity("owner", SECRET))
        async with trio.open_nursery() as nursery:
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            nursery.start_soon(trio.serve_listeners, reads.handle, [listener])
            address = address_of(listener)
            await talk(address, noise)
            await _say([_of_ours(message, node) for message in said], address, "owner")
            async with open_reader(address, "asker", SECRET, name="owner") as reader:
                held = (await reader.list("v"))[0]
                assert await reader.chunk(held, 0, node.ino) == b"content"
            nursery.cancel_scope.cancel()

    caplog.clear()
    with tempfile.TemporaryDirectory() as base, caplog.at_level(logging.ERROR):
        trio.run(attacked, Path(base))
    assert caplog.records == []


def _of_ours(message: m.Message, node: Node) -> m.Message:
    """Every other question is about a file that is there, as far as it names one."""
    known = {"ino": node.ino, "version": node.settled_at_ns}
    odd = getattr(message, "id", 0) % 2
    return msgspec.structs.replace(
        message,
        **{name: value for name, value in known.items() if odd and hasattr(message, name)},
    )
