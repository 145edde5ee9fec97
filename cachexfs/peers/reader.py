"""Questions to one peer: what it holds, and the content. One question at a time.

Every chunk is checked on arrival too, against the checksums of the replica that was asked for.
"""

from __future__ import annotations

import secrets
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio

from cachexfs.durability.checksum import CHUNK_BYTES, chunk_count, chunk_crc, crc_at
from cachexfs.errors import CacheXError
from cachexfs.peers import messages as m
from cachexfs.peers.greeting import Identity, connect
from cachexfs.peers.handshake import SESSION_BYTES, HandshakeFailed
from cachexfs.peers.intake import unpack
from cachexfs.peers.messages import Replica
from cachexfs.peers.stream import BROKEN, Disconnected, FrameStream
from cachexfs.peers.whereabouts import NOWHERE
from cachexfs.peers.wire import ProtocolError

STALL_S = 10.0
"""A peer that sends nothing for so long is given up."""


STALE_S = 20.0
"""A connection that was idle for longer is not used again: before `server.IDLE_S` ends it."""


class PeerFailed(CacheXError):
    """A peer did not answer a question; `peer` names it. The connection is of no more use."""

    def __init__(self, peer: str, why: str) -> None:
        super().__init__(f"{peer}: {why}")
        self.peer = peer


class ReplicaUnreadable(CacheXError):
    """This peer cannot give this content, others may; `chunk` is the damaged one, if known."""

    def __init__(self, peer: str, path: bytes, why: str, chunk: int | None = None) -> None:
        super().__init__(f"{path!r} on {peer}: {why}")
        self.peer = peer
        self.path = path
        self.chunk = chunk


class PeerReader:
    """An open connection for questions; made by `open_reader`."""

    def __init__(self, stream: FrameStream, name: str) -> None:
        self.name = name
        self._stream = stream
        self._last_id = 0
        self._used_at_s = trio.current_time()
        self._stall_s = STALL_S

    @property
    def is_stale(self) -> bool:
        """Whether the peer may have closed the connection, since nobody used it for long."""
        return trio.current_time() - self._used_at_s > STALE_S

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()

    async def describe(self, replica: Replica, ino: int) -> Replica:
        """What the owner says of its file `ino`. Raises `ReplicaUnreadable`, `PeerFailed`."""
        await self._ask(m.Describe(self._next_id(), ino, replica.version))
        message, _ = await self._next()
        if isinstance(message, m.Refused):
            raise ReplicaUnreadable(self.name, replica.path, message.detail)
        if not isinstance(message, m.Described):
            raise self._unexpected(message)
        return message.replica

    async def chunk(
        self, replica: Replica, index: int, ino: int | None, stall_s: float = STALL_S
    ) -> bytes:
        """One chunk: of the owner's file `ino`, or of a replica. Raises as `fetch`.

        `stall_s`: for how long nothing may come. A slow link is not to blame for being slow.
        """
        self._stall_s = stall_s
        number = self._next_id()
        if ino is not None:
            await self._ask(m.Read(number, ino, replica.version, index, index + 1))
        else:
            place = replica.volume, replica.path, replica.version
            await self._ask(m.Fetch(number, *place, index, index + 1))
        data = await self._chunk(replica, index)
        message, _ = await self._next()
        if not isinstance(message, m.Ack):
            raise self._unexpected(message)
        self._used_at_s = trio.current_time()
        return data

    async def volumes(self) -> list[str]:
        """Which volumes the peer holds. Raises `PeerFailed`."""
        await self._ask(m.Volumes(self._next_id()))
        message, _ = await self._next()
        if not isinstance(message, m.VolumeNames):
            raise self._unexpected(message)
        return message.names

    async def mounts(self, volume: str) -> Sequence[tuple[str, str]]:
        """The mounts of a volume that the peer knows of, as (node, address). Raises `PeerFailed`.

        Also those that are gone since a little while.
        """
        await self._ask(m.FindAll(self._next_id(), volume, NOWHERE))
        message, _ = await self._next()
        if not isinstance(message, m.Found):
            raise self._unexpected(message)
        return [(entry.replica.owner, entry.address) for entry in message.entries]

    async def list(self, volume: str, prefix: bytes = b"") -> list[Replica]:
        """Replicas and tombstones (kind "gone") at `prefix` and below. Raises `PeerFailed`."""
        await self._ask(m.List(self._next_id(), volume, prefix))
        replicas: list[Replica] = []
        while True:
            message, _ = await self._next()
            if not isinstance(message, m.Listing):
                raise self._unexpected(message)
            replicas += message.replicas
            if not message.more:
                return replicas

    async def fetch(
        self, replica: Replica, first: int = 0, last: int | None = None
    ) -> AsyncIterator[tuple[int, bytes]]:
        """Chunks `first` to `last` (exclusive; None: all) as (index, bytes), in order.

        Raises `ReplicaUnreadable`, `PeerFailed`. To be read to its end, or the reader closed.
        """
        end = chunk_count(replica.size_bytes) if last is None else last
        number = self._next_id()
        await self._ask(m.Fetch(number, replica.volume, replica.path, replica.version, first, end))
        for index in range(first, end):
            yield index, await self._chunk(replica, index)
        message, _ = await self._next()
        if not isinstance(message, m.Ack):
            raise self._unexpected(message)

    async def _chunk(self, replica: Replica, index: int) -> bytes:
        message, payload_bytes = await self._next()
        match message:
            case m.Data():
                data = await self._payload(payload_bytes, message.raw_bytes)
            case m.Damaged():
                why = f"chunk {message.index} is damaged on its disk"
                raise ReplicaUnreadable(self.name, replica.path, why, message.index)
            case m.Refused():
                raise ReplicaUnreadable(self.name, replica.path, message.detail)
            case _:
                raise self._unexpected(message)
        expected = crc_at(replica.crcs, index)
        if message.index != index or chunk_crc(data) != expected:
            # The rest of the answer is on its way; nobody will read it.
            raise PeerFailed(self.name, f"chunk {index} of {replica.path!r} arrived damaged")
        return data

    async def _payload(self, payload_bytes: int, raw_bytes: int) -> bytes:
        buffer = bytearray(payload_bytes)
        try:
            await self._stream.payload_into(memoryview(buffer), self._stall_s)
        except (*BROKEN, Disconnected, trio.TooSlowError) as error:
            raise self._failed(error) from None
        if raw_bytes == payload_bytes:
            return bytes(buffer)
        return bytes(unpack(memoryview(buffer), min(raw_bytes, CHUNK_BYTES)))

    async def _ask(self, question: m.Message) -> None:
        try:
            with trio.fail_after(self._stall_s):
                await self._stream.send(question)
        except (*BROKEN, trio.TooSlowError) as error:
            raise self._failed(error) from None

    async def _next(self) -> tuple[m.Message, int]:
        try:
            with trio.fail_after(self._stall_s):
                return await self._stream.receive()
        except (*BROKEN, Disconnected, ProtocolError, trio.TooSlowError) as error:
            raise self._failed(error) from None

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _failed(self, error: Exception) -> PeerFailed:
        slow = isinstance(error, trio.TooSlowError)
        why = (
            f"nothing for {self._stall_s:.0f} s" if slow else str(error) or "the connection is gone"
        )
        return PeerFailed(self.name, why)

    def _unexpected(self, message: m.Message) -> PeerFailed:
        why = message.detail if isinstance(message, m.Refused) else type(message).__name__
        return PeerFailed(self.name, f"answered: {why}")


@asynccontextmanager
async def open_reader(
    address: str,
    node: str,
    secret: bytes,
    *,
    name: str | None = None,
    ssl_context: ssl.SSLContext | None = None,
) -> AsyncIterator[PeerReader]:
    """Connect to the peer at `address` ("HOST:PORT"), which must be called `name` if given.

    Raises `PeerFailed`; `HandshakeFailed` when the secrets differ.
    """
    reader = await connect_reader(address, Identity(node, secret, ssl_context), name=name)
    try:
        yield reader
    finally:
        await reader.aclose()


async def connect_reader(
    address: str, identity: Identity, *, name: str | None = None
) -> PeerReader:
    """As `open_reader`; the caller closes it."""
    try:
        session = secrets.token_bytes(SESSION_BYTES)
        stream, _, found = await connect(address, identity, session, name)
    except HandshakeFailed:
        raise
    except (*BROKEN, Disconnected, ProtocolError, trio.TooSlowError) as error:
        raise PeerFailed(name or address, str(error) or "does not answer") from None
    return PeerReader(stream, found)
