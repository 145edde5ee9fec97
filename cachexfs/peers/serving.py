"""The owner's side of reading: the mount's daemon serves the files in its RAM tier to other nodes.

Read-only, over the peers' protocol and handshake, on a port of its own that every registration
names. A file is readable from the moment of its close: its checksums are computed when somebody
asks first, if they are not known by then. Who recovers asks as it asks a peer, by path: what is
durable stays in RAM for a while, and may be nowhere else when the shared file system is silent.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Awaitable
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec
import trio

from cachexfs.durability.checksum import CHUNK_BYTES, chunk_count
from cachexfs.durability.states import State
from cachexfs.peers import messages as m
from cachexfs.peers import paths
from cachexfs.peers.admission import ENDED, Admission, turn_away
from cachexfs.peers.answers import parts_of
from cachexfs.peers.catalogue import Catalogue
from cachexfs.peers.greeting import Identity
from cachexfs.peers.handshake import Listener
from cachexfs.peers.refusal import Refusal
from cachexfs.peers.server import IDLE_S
from cachexfs.peers.stream import FrameStream
from cachexfs.peers.wire import RemoteProtocolError
from cachexfs.ram.node import Node
from cachexfs.ram.sums import Sums, is_present
from cachexfs.ram.tier import Tier
from cachexfs.ram.tree import Tree

MAX_READERS = 256
READS_AT_ONCE = 4

T = TypeVar("T")
log = logging.getLogger(__name__)


class Content(NamedTuple):
    """A settled file, open; whoever asked closes `fd`."""

    replica: m.Replica
    fd: int


class ReadServer:
    """Whoever composes calls `handle` for each connection (`serve_listeners`)."""

    def __init__(
        self, tree: Tree, tier: Tier, sums: Sums, catalogue: Catalogue, identity: Identity
    ) -> None:
        self._tree = tree
        self._tier = tier
        self._sums = sums
        self._catalogue = catalogue
        self._identity = identity
        self._admission = Admission(MAX_READERS)
        self._listed: dict[int, int] = {}
        """Version -> number: a version is the instant of one close, so it is one file's."""
        self._threads = trio.CapacityLimiter(READS_AT_ONCE)

    async def handle(self, transport: trio.abc.Stream) -> None:
        """Serve one connection to its end. Raises nothing of its own."""
        try:
            greeted = await self._admission.greet(transport, self._identity)
            if greeted is not None:
                await self._admit(*greeted)
        except ENDED as error:
            log.debug("a reader's connection ended: %s", error)
        except Exception:
            log.exception("a reader's connection ends because of a defect")
        finally:
            await trio.aclose_forcefully(transport)

    async def _admit(self, stream: FrameStream, side: Listener) -> None:
        try:
            with self._admission.member(side.other_node):
                await self._converse(stream)
        except Refusal as refusal:
            await turn_away(stream, refusal)

    async def _converse(self, stream: FrameStream) -> None:
        await _in_time(stream.send(m.Welcome(0)))
        while True:
            message, payload_bytes = await _in_time(stream.receive())
            if payload_bytes:
                raise RemoteProtocolError("a payload makes no sense here")
            try:
                await self._answer(stream, message)
            except Refusal as refusal:
                number = getattr(message, "id", 0)
                refused = m.Refused(number, refusal.code, refusal.detail, refusal.retry)
                await _in_time(stream.send(refused))

    async def _answer(self, stream: FrameStream, message: m.Message) -> None:
        match message:
            case m.Ping():
                await _in_time(stream.send(m.Pong(message.id, 0)))
            case m.Describe():
                content = await self._content(message.ino, message.version)
                os.close(content.fd)
                await _in_time(stream.send(m.Described(message.id, content.replica)))
            case m.Read(number, ino, version, first, last):
                await self._send(stream, number, ino, version, range(first, last))
            case m.List():
                await self._list(stream, message)
            case m.Fetch(number, volume, path, version, first, last):
                ino = self._ino_of(volume, path, version)
                await self._send(stream, number, ino, version, range(first, last))
            case _:
                raise RemoteProtocolError(f"{type(message).__name__} makes no sense here")

    async def _send(
        self, stream: FrameStream, number: int, ino: int, version: int, wanted: range
    ) -> None:
        content = await self._content(ino, version)
        try:
            size_bytes = content.replica.size_bytes
            for index in range(wanted.start, min(wanted.stop, chunk_count(size_bytes))):
                offset = index * CHUNK_BYTES
                length = min(CHUNK_BYTES, size_bytes - offset)
                data = m.Data(number, index, length)
                if stream.can_sendfile:
                    await _in_time(stream.send_file(data, content.fd, offset, length))
                else:
                    read_it = partial(os.pread, content.fd, length, offset)
                    part = await trio.to_thread.run_sync(read_it, limiter=self._threads)
                    await _in_time(stream.send(data, part.ljust(length, b"\0")))
            await _in_time(stream.send(m.Ack(number)))
        finally:
            os.close(content.fd)

    # --- by path --------------------------------------------------------------------------------

    async def _list(self, stream: FrameStream, question: m.List) -> None:
        try:
            prefix = paths.check_prefix(question.prefix)
        except paths.BadPath as error:
            raise Refusal("BadPath", str(error)) from None
        held = [each async for each in self._held(prefix)] if self._is_of(question.volume) else []
        for part in parts_of(held):
            await _in_time(stream.send(m.Listing(question.id, part, more=True)))
        await _in_time(stream.send(m.Listing(question.id, [], more=False)))

    async def _held(self, prefix: bytes) -> AsyncIterator[m.Replica]:
        self._listed = {v: ino for v, ino in self._listed.items() if ino in self._tree.nodes}
        for ino in [node.ino for node in self._tree.captured()]:
            node = self._tree.nodes.get(ino)
            slots = sorted(node.names) if node is not None else []
            places = [path for path in map(self._tree.path, slots) if _is_at(prefix, path)]
            if node is None or node.life is None or not places:
                continue
            if not await self._sums.ensure(node, node.life.version):
                continue
            self._listed[node.settled_at_ns] = ino
            durable = node.state is State.DURABLE
            for path in places:
                replica = self._catalogue.file(node, path)
                yield msgspec.structs.replace(replica, durable=durable)

    def _ino_of(self, volume: str, path: bytes, version: int) -> int:
        """The number of what was listed at a path. Raises `Refusal`."""
        node = self._tree.nodes.get(self._listed.get(version, 0))
        if node is not None and self._is_of(volume) and path in map(self._tree.path, node.names):
            return node.ino
        raise Refusal("NotFound", f"version {version} of {path!r} is not here any more")

    def _is_of(self, volume: str) -> bool:
        return volume == self._catalogue.volume

    async def _content(self, ino: int, version: int) -> Content:
        """A file of ours in this version. Raises `Refusal` (NotFound)."""
        node = self._present(ino, version)
        assert node.life is not None
        await self._sums.ensure(node, node.life.version)
        node = self._present(ino, version)
        try:
            assert node.blob is not None
            replica = self._catalogue.file(node, self._tree.path_of(node))
            return Content(replica, self._tier.open(node.blob, os.O_RDONLY))
        except OSError as error:
            raise Refusal("NotFound", str(error)) from None

    def _present(self, ino: int, version: int) -> Node:
        node = self._tree.nodes.get(ino)
        is_meant = node is not None and node.settled_at_ns == version
        if node is not None and is_meant and node.life and is_present(node, node.life.version):
            return node
        raise Refusal("NotFound", f"version {version} of {ino} is not here any more")


def _is_at(prefix: bytes, path: bytes) -> bool:
    return not prefix or path == prefix or path.startswith(prefix + b"/")


async def _in_time(step: Awaitable[T]) -> T:
    """One message or chunk, either way: who needs longer for it is gone, or reads nothing."""
    with trio.fail_after(IDLE_S):
        return await step
