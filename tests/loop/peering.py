"""A peer, a link to it, and a wire between them that can be cut or bent. Fakes, not mocks."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import trio

from cachexfs.durability.checksum import checksum
from cachexfs.peers import orders
from cachexfs.peers.messages import Replica
from cachexfs.peers.orders import Order, Outcome, Put
from cachexfs.peers.sender import PeerLink
from cachexfs.peers.server import PeerServer
from cachexfs.peers.store import Store

SECRET = b"a secret of the cluster"
VOLUME = "/lustre/run"


def replica(path: bytes, content: bytes = b"", version: int = 1, **more: object) -> Replica:
    """A file's replica of node "owner"."""
    fields: dict[str, object] = {
        "volume": VOLUME, "path": path, "kind": "file", "owner": "owner", "version": version,
        "closed_at_ns": version, "size_bytes": len(content), "crcs": checksum(content),
    }  # fmt: skip
    return Replica(**{**fields, **more})  # type: ignore[arg-type]


def content_fd(content: bytes) -> int:
    """A descriptor of a memory file with this content."""
    fd = os.memfd_create("content")
    os.truncate(fd, len(content))
    os.pwrite(fd, content, 0)
    return fd


def put(path: bytes, content: bytes = b"", version: int = 1, **more: object) -> Put:
    """An order for a file of node "owner"."""
    return Put(replica(path, content, version, **more), partial(content_fd, content))


@contextmanager
def store_at(directory: Path, limit_bytes: int | None = None) -> Iterator[Store]:
    """A store, closed at the end."""
    store = Store(directory, limit_bytes)
    try:
        yield store
    finally:
        store.close()


async def serve(
    nursery: trio.Nursery,
    store: Store,
    *,
    secret: bytes = SECRET,
    ssl_context: ssl.SSLContext | None = None,
    port: int = 0,
) -> str:
    """Start a peer called "peer"; its address."""
    server = PeerServer(store, "peer", secret, ssl_context)
    listeners = await trio.open_tcp_listeners(port, host="127.0.0.1")
    await nursery.start(partial(trio.serve_listeners, server.handle, listeners))
    return address_of(listeners[0])


def address_of(listener: trio.SocketListener) -> str:
    """Where it listens."""
    host, port = listener.socket.getsockname()[:2]
    return f"{host}:{port}"


class Owner:
    """A link with what came of its orders."""

    def __init__(self, address: str, **more: object) -> None:
        self.done: list[tuple[Order, Outcome]] = []
        secret = more.pop("secret", SECRET)
        self.link = PeerLink(
            "peer", address, "owner", secret, on_done=self._on_done, **more  # type: ignore[arg-type]
        )  # fmt: skip
        self._finished = trio.Event()

    def _on_done(self, order: Order, outcome: Outcome) -> None:
        self.done.append((order, outcome))
        self._finished.set()

    @property
    def outcomes(self) -> list[str]:
        """How the orders ended, in order."""
        return [outcome.kind for _, outcome in self.done]

    async def finish(self, *new: Order, within_s: float = 20.0) -> list[str]:
        """Submit orders and wait until every order so far has ended."""
        wanted = len(self.done) + len(new)
        for order in new:
            self.link.submit(order)
        await self.until(wanted, within_s)
        return self.outcomes

    async def until(self, count: int, within_s: float = 20.0) -> None:
        """Wait until so many orders have ended."""
        with trio.fail_after(within_s):
            while len(self.done) < count:
                self._finished = trio.Event()
                await self._finished.wait()


class Wire:
    """A proxy in front of `address`; `bend(chunk, offset)` changes what the owner sends.

    `cut_after`: how many bytes pass on each connection, in turn, before it is cut; then all pass.
    `lose_answer_to`: no answer passes once these bytes were sent; soon the connection is cut.
    `freeze_after`: the first connection stays, and moves nothing more after so many bytes.
    """

    def __init__(
        self,
        address: str,
        *,
        cut_after: list[int] | None = None,
        bend: Callable[[bytes, int], bytes] | None = None,
        lose_answer_to: bytes | None = None,
        freeze_after: int | None = None,
    ) -> None:
        host, _, port = address.rpartition(":")
        self._target = (host, int(port))
        self._cut_after = list(cut_after or [])
        self._bend = bend or (lambda data, offset: data)
        self._lose_answer_to = lose_answer_to
        self._freeze_after = freeze_after
        self._mute = False
        self.connections = 0
        self.passed_bytes = 0

    async def start(self, nursery: trio.Nursery) -> str:
        """Start it; where it listens."""
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        await nursery.start(partial(trio.serve_listeners, self._handle, listeners))
        return address_of(listeners[0])

    async def _handle(self, owner: trio.SocketStream) -> None:
        self.connections += 1
        self._mute = False
        limit = self._cut_after.pop(0) if self._cut_after else None
        try:
            peer = await trio.open_tcp_stream(*self._target)
        except OSError:
            await trio.aclose_forcefully(owner)
            return
        async with peer, owner, trio.open_nursery() as nursery:
            nursery.start_soon(self._forward, owner, peer, limit, nursery.cancel_scope)
            nursery.start_soon(self._forward_back, peer, owner, nursery.cancel_scope)

    async def _forward(
        self,
        source: trio.SocketStream,
        sink: trio.SocketStream,
        limit: int | None,
        scope: trio.CancelScope,
    ) -> None:
        offset = 0
        try:
            while data := await source.receive_some(65536):
                if limit is not None and offset + len(data) > limit:
                    await sink.send_all(data[: limit - offset])
                    break
                if self._freeze_after is not None and offset > self._freeze_after:
                    self._freeze_after, self._mute = None, True
                    await trio.sleep_forever()
                if self._lose_answer_to is not None and self._lose_answer_to in data:
                    self._lose_answer_to, self._mute = None, True
                    await sink.send_all(data)
                    await trio.sleep(0.3)
                    break
                await sink.send_all(self._bend(data, offset))
                offset += len(data)
                self.passed_bytes += len(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        scope.cancel()

    async def _forward_back(
        self, source: trio.SocketStream, sink: trio.SocketStream, scope: trio.CancelScope
    ) -> None:
        try:
            while data := await source.receive_some(65536):
                if not self._mute:
                    await sink.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        scope.cancel()


__all__ = [
    "SECRET", "VOLUME", "Owner", "Wire", "address_of", "content_fd", "orders", "put", "replica",
    "serve", "store_at",
]  # fmt: skip
