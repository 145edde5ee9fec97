"""Strangers, other clusters, somebody on the path, and members that want too much."""

from __future__ import annotations

import datetime
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import trio
import trustme
from peering import SECRET, VOLUME, Owner, Wire, address_of, orders, put, replica, serve, store_at

from cachexfs.config import Security
from cachexfs.peers import messages as m
from cachexfs.peers import tls
from cachexfs.peers.greeting import Identity, connect
from cachexfs.peers.handshake import HandshakeFailed
from cachexfs.peers.reader import open_reader
from cachexfs.peers.store import Store
from cachexfs.peers.stream import BROKEN, Disconnected, FrameStream

pytestmark = pytest.mark.trio
OTHER_SECRET = b"the secret of cluster B"
NOT_SENT = "a frame that the other side has not sent, or not now"


class Place(NamedTuple):
    """A peer of cluster A that holds `keep` and `old`."""

    nursery: trio.Nursery
    store: Store
    address: str
    owner: Owner

    @property
    def names(self) -> list[bytes]:
        held = self.store.listing(VOLUME, b"", b"")
        return [each.path for each in held if each.kind != "gone"]

    async def still_serves(self) -> None:
        """Others are not disturbed."""
        before = len(self.owner.done)
        await self.owner.finish(put(b"new", b"%d" % before, version=before + 9), within_s=10)
        assert self.owner.outcomes[-1] == "acked" and self.owner.link.state == "up"


@pytest.fixture
async def place(nursery: trio.Nursery, tmp_path: Path) -> AsyncIterator[Place]:
    with store_at(tmp_path / "store") as store:
        address = await serve(nursery, store)
        owner = Owner(address)
        nursery.start_soon(owner.link.run)
        await owner.finish(put(b"keep", b"keep"), put(b"old", b"old"))
        yield Place(nursery, store, address, owner)
        nursery.cancel_scope.cancel()


async def why_not(address: str, identity: Identity, expected: str | None = "peer") -> str:
    """The sentence with which a connection is not had."""
    with pytest.raises((HandshakeFailed, *BROKEN, Disconnected)) as caught, trio.fail_after(5):
        await connect(address, identity, os.urandom(16), expected)
    return str(caught.value)


# --- somebody on the path ----------------------------------------------------------------------


class Tape:
    """What went through a proxy, each way."""

    def __init__(self) -> None:
        self.out = b""
        self.back = b""


async def recorded(nursery: trio.Nursery, address: str) -> tuple[str, Tape]:
    host, _, port = address.rpartition(":")
    tape = Tape()

    async def forward(source: trio.SocketStream, sink: trio.SocketStream, way: str) -> None:
        async for data in source:
            setattr(tape, way, getattr(tape, way) + data)
            await sink.send_all(data)

    async def handle(near: trio.SocketStream) -> None:
        far = await trio.open_tcp_stream(host, int(port))
        async with near, far, trio.open_nursery() as both:
            both.start_soon(forward, near, far, "out")
            both.start_soon(forward, far, near, "back")

    return await listening(nursery, handle), tape


async def listening(nursery: trio.Nursery, handle: Callable[[trio.SocketStream], object]) -> str:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    await nursery.start(partial(trio.serve_listeners, handle, listeners))
    return address_of(listeners[0])


async def said_to(address: str, data: bytes, within_s: float = 5.0) -> bytes:
    """What is answered to bytes until the connection is closed."""
    host, _, port = address.rpartition(":")
    received = b""
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        try:
            with trio.fail_after(within_s):
                await stream.send_all(data)
                async for part in stream:
                    received += part
        except trio.BrokenResourceError:
            pass
    return received


async def test_a_recorded_conversation_is_of_no_use_at_the_peer(
    place: Place, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cachexfs.peers.greeting.HANDSHAKE_S", 1.0)
    through, tape = await recorded(place.nursery, place.address)
    owner = Owner(through)
    async with trio.open_nursery() as first:
        first.start_soon(owner.link.run)
        await owner.finish(orders.Unlink(VOLUME, b"old", at_ns=9))
        first.cancel_scope.cancel()
    await place.owner.finish(put(b"old", b"again", version=20))
    answer = await said_to(place.address, tape.out)
    assert b"Welcome" not in answer
    assert "owner does not have the same secret as peer" in caplog.text
    assert place.names == [b"keep", b"old"]
    parts = [tape.out[:60], tape.out[6:], tape.out[len(tape.out) // 2 :]]
    for part in parts:
        assert b"Welcome" not in await said_to(place.address, part, 6.0)
    await place.still_serves()


async def test_a_recorded_peer_is_of_no_use_at_the_owner(place: Place) -> None:
    through, tape = await recorded(place.nursery, place.address)
    async with open_reader(through, "asker", SECRET, name="peer") as reader:
        assert len(await reader.list(VOLUME)) == 2

    async def replay(stream: trio.SocketStream) -> None:
        await stream.send_all(tape.back)
        await trio.sleep(5)

    address = await listening(place.nursery, replay)
    said = await why_not(address, Identity("asker", SECRET))
    assert said == ("peer does not have the same secret as asker (security.secret_file)")


async def test_an_owner_that_hears_itself_is_not_fooled(place: Place) -> None:
    async def echo(stream: trio.SocketStream) -> None:
        async for data in stream:
            await stream.send_all(data)

    owner = Owner(await listening(place.nursery, echo))
    owner.link.submit(put(b"a", b"a"))
    place.nursery.start_soon(owner.link.run)
    await trio.sleep(0.3)
    assert owner.done == [] and "Hello makes no sense in the handshake" in str(
        owner.link.last_error
    )


def once(change: Callable[[bytes], bytes]) -> Callable[[bytes, int], bytes]:
    """A man in the middle who changes the first order that he sees, and lets the rest pass."""
    left = [1]

    def bend(data: bytes, offset: int) -> bytes:
        if b"Unlink" in data and left:
            left.pop()
            return change(data)
        return data

    return bend


BENDS = {
    "forged": lambda data: data.replace(b"\xc4\x03old", b"\xc4\x03new"),
    "repeated": lambda data: data + data,
    "left out": lambda data: b"",
    "in the clear": lambda data: data[:8] + data[24:],
    "spliced": lambda data: TAKEN[0] + data,
}
TAKEN = [b""]


@pytest.mark.parametrize("how", BENDS)
async def test_orders_cannot_be_changed_on_the_way(
    place: Place, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    await place.owner.finish(put(b"new", b"n"))
    if how == "spliced":  # a frame that this very peer took from another connection
        through, tape = await recorded(place.nursery, place.address)
        other = Owner(through)
        place.nursery.start_soon(other.link.run)
        await other.finish(put(b"x", b"x"))
        before = len(tape.out)
        await other.finish(orders.Unlink(VOLUME, b"keep", at_ns=0))
        TAKEN[0] = tape.out[before:]
    wire = Wire(place.address, bend=once(BENDS[how]))
    owner = Owner(await wire.start(place.nursery))
    place.nursery.start_soon(owner.link.run)
    await owner.finish(put(b"a", b"a"))
    owner.link.submit(orders.Unlink(VOLUME, b"old", at_ns=1 << 61))
    await trio.sleep(0.1)
    owner.link.submit(put(b"b", b"b"))
    await owner.until(3)
    assert set(owner.outcomes) == {"acked"} and wire.connections == 2
    assert NOT_SENT in caplog.text
    assert {b"a", b"b", b"keep", b"new"} <= set(place.names) and b"old" not in place.names


async def test_answers_cannot_be_forged_either(place: Place) -> None:
    """An `Ack` that nobody sent would make a file replicated that nobody has."""
    host, _, port = place.address.rpartition(":")

    async def forge(near: trio.SocketStream) -> None:
        far = await trio.open_tcp_stream(host, int(port))
        async with near, far, trio.open_nursery() as both:
            both.start_soon(_copy, near, far)
            async for data in far:  # until the peer has proven itself
                welcomed = b"Welcome" in data
                await near.send_all(data)
                if welcomed:
                    break
            ack = b"\x82\xa4type\xa3Ack\xa2id\x01"
            await near.send_all(len(ack).to_bytes(4, "big") + bytes(4) + bytes(16) + ack)

    owner = Owner(await listening(place.nursery, forge))
    owner.link.submit(put(b"never", b"n" * 100_000))
    place.nursery.start_soon(owner.link.run)
    await trio.sleep(0.3)
    assert owner.done == [] and NOT_SENT in str(owner.link.last_error)


async def _copy(source: trio.SocketStream, sink: trio.SocketStream) -> None:
    try:
        async for data in source:
            if b"Offer" not in data:
                await sink.send_all(data)
    except BROKEN:
        pass


# --- TLS ---------------------------------------------------------------------------------------


class Authority:
    """A certificate authority, and the [security] of nodes that it vouches for."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ca = trustme.CA()

    def security(self, name: str, trusted: Authority | None = None, *, days: int = 30) -> Security:
        now = datetime.datetime.now(datetime.timezone.utc)
        begin, end = sorted((now - datetime.timedelta(days=1), now + datetime.timedelta(days=days)))
        cert = self._ca.issue_cert(name, not_before=begin, not_after=end)
        base = self._directory / os.urandom(4).hex()
        ca, pem, key = (base.with_suffix(end) for end in (".ca", ".pem", ".key"))
        (trusted or self)._ca.cert_pem.write_to_path(ca)
        cert.cert_chain_pems[0].write_to_path(pem)
        cert.private_key_pem.write_to_path(key)
        key.chmod(0o600)
        return Security(tls_cert=str(pem), tls_key=str(key), tls_ca=str(ca))


class Case(NamedTuple):
    """Who connects to whom, what the connector says, and what the peer's log says."""

    client: str
    server: str
    says: str
    logs: str


THEY_DO_NOT = "this side speaks TLS and the other does not (security.tls_cert, tls_key, tls_ca"
WE_DO_NOT = "the other side speaks TLS and this side does not (security.tls_cert, tls_key, tls_ca"
CLOSED = "it closed the connection: its log says why"
NOT_ACCEPTED = "its certificate is not accepted here: "
TLS_CASES = [
    Case("stranger", "ours", CLOSED, NOT_ACCEPTED + "unable to get local issuer certificate"),
    Case("ours", "stranger", NOT_ACCEPTED + "unable to get local issuer certificate", CLOSED),
    Case("expired", "ours", CLOSED, NOT_ACCEPTED + "certificate has expired"),
    Case("ours", "expired", NOT_ACCEPTED + "certificate has expired", CLOSED),
    Case("bare", "ours", CLOSED, "it shows no certificate (security.tls_cert there)"),
    Case("plain", "ours", CLOSED, THEY_DO_NOT),
    Case("ours", "plain", THEY_DO_NOT, WE_DO_NOT),
]


@pytest.mark.parametrize("case", TLS_CASES, ids=lambda case: f"{case.client} at {case.server}")
async def test_who_is_not_of_our_authority_is_told_so_and_gets_nothing(
    nursery: trio.Nursery, tmp_path: Path, case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    ours, other = Authority(tmp_path), Authority(tmp_path)
    kinds = {
        "ours": ours.security("n1"),
        "stranger": other.security("n1", trusted=ours),
        "expired": ours.security("n1", days=-2),
        "plain": Security(),
    }
    client = tls.contexts(kinds.get(case.client, kinds["ours"])).client
    if case.client == "bare" and client is not None:
        client = tls.ssl.SSLContext(tls.ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname = False
        client.load_verify_locations(kinds["ours"].tls_ca)
    with store_at(tmp_path / "store") as store:
        server = tls.contexts(kinds[case.server]).server
        address = await serve(nursery, store, ssl_context=server)
        owner = Owner(address, ssl_context=client)
        owner.link.submit(put(b"a", b"a"))
        nursery.start_soon(owner.link.run)
        for _ in range(200):
            if case.says in str(owner.link.last_error) and case.logs in caplog.text:
                break
            await trio.sleep(0.02)
        assert case.says in str(owner.link.last_error)
        assert case.logs in caplog.text
        assert owner.done == [] and store.volumes() == []
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def tls_peer(
    nursery: trio.Nursery, tmp_path: Path
) -> AsyncIterator[tuple[str, Authority, Store]]:
    authority = Authority(tmp_path)
    with store_at(tmp_path / "store") as store:
        server = tls.contexts(authority.security("n1")).server
        yield await serve(nursery, store, ssl_context=server), authority, store
        nursery.cancel_scope.cancel()


async def test_with_a_certificate_the_secret_and_the_name_are_wanted_all_the_same(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    async with tls_peer(nursery, tmp_path) as (address, authority, store):
        context = tls.contexts(authority.security("n2")).client
        thief = Identity("thief", OTHER_SECRET, context)
        assert "peer does not have the same secret as thief" in await why_not(address, thief)
        member = Identity("n2", SECRET, context)
        said = await why_not(address, member, "another")
        assert "the node that answers calls itself peer, not another" in said
        owner = Owner(address, ssl_context=context)
        nursery.start_soon(owner.link.run)
        assert await owner.finish(put(b"a", b"a")) == ["acked"]
        assert store.volumes() == [VOLUME]


# --- another cluster ---------------------------------------------------------------------------


async def test_a_member_of_another_cluster_cannot_read_or_change_anything(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    owner = Owner(place.address, secret=OTHER_SECRET)
    for order in (
        put(b"keep", b"theirs", version=99),
        orders.Unlink(VOLUME, b"keep", at_ns=1 << 60),
        orders.Rename(VOLUME, b"keep", b"gone"),
        orders.Durable(VOLUME, b"keep", 1),
    ):
        owner.link.submit(order)
    place.nursery.start_soon(owner.link.run)
    with pytest.raises(HandshakeFailed, match="does not have the same secret"):
        async with open_reader(place.address, "thief", OTHER_SECRET) as reader:
            await reader.list(VOLUME)
    await trio.sleep(0.3)
    assert owner.done == [] and place.names == [b"keep", b"old"]
    assert "does not have the same secret as owner (security.secret_file)" in str(
        owner.link.last_error
    )
    assert "does not have the same secret" in caplog.text


@pytest.mark.parametrize("first", [
    m.List(1, VOLUME), m.Fetch(1, VOLUME, b"keep", 1, 0, 1), m.Volumes(1), m.Ping(1),
    m.Unlink(1, VOLUME, b"keep", 1 << 60), m.Offer(1, replica(b"keep", b"x", version=9)),
    m.Register(1, VOLUME, 1, []), m.FindAll(1, VOLUME, 1), m.Welcome(0), m.Proof(bytes(32)),
])  # fmt: skip
async def test_nothing_is_done_or_said_before_the_secret_is_proven(
    place: Place, first: m.Message
) -> None:
    host, _, port = place.address.rpartition(":")
    stream = FrameStream(await trio.open_tcp_stream(host, int(port)))
    await stream.greet()
    await stream.send(first)
    with pytest.raises((Disconnected, *BROKEN)), trio.fail_after(5):
        await stream.receive()
    await stream.aclose()
    assert place.names == [b"keep", b"old"]
