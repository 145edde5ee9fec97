"""Sending the line's orders over one connection, and handling the answers.

Small files go out whole without waiting for the peer's `Need`, up to the line's window, so that the
peer can commit them as a group. Larger ones wait for it: the peer may have most of the file.
Only `transmit` sends orders, so their frames are in the order of the line.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import Literal

import trio
import zstandard

from cachexfs.durability.checksum import CHUNK_BYTES
from cachexfs.peers import messages as m
from cachexfs.peers.ahead import Ahead, Piece, Scrapped
from cachexfs.peers.chase import changed
from cachexfs.peers.line import Entry, Line
from cachexfs.peers.orders import ACKED, CHANGED, GONE, Outcome, Put
from cachexfs.peers.stream import FrameStream
from cachexfs.peers.wire import RemoteProtocolError

INLINE_BYTES = 64 << 10
"""Up to this a file, its offer and its commit leave in one system call."""
MAX_RESENDS = 2
"""A chunk that is wrong after that often is not damaged on the way: the content has changed."""
WORTH_IT = 0.9
"""A chunk is sent compressed when that leaves no more than this of it."""
PROBE_EVERY = 16
"""After a chunk that did not shrink, "auto" tries only every so many chunks of the file."""
AUTO_LEVEL = 1
"""zstandard's fastest ordinary level keeps up with a network of about 4 Gbit/s on one core."""

Compression = Literal["off", "auto"] | int


class PeerProblem(Exception):
    """The peer cannot do an order now; `str()` says why. It is to be sent again later."""


class Transfer:
    """One connection's worth of the line. `settled` is called after every outcome."""

    def __init__(
        self,
        stream: FrameStream,
        line: Line,
        ahead: Ahead,
        settled: Callable[[], None],
        compression: Compression,
        limiter: trio.CapacityLimiter,
    ) -> None:
        self._stream = stream
        self._line = line
        self._ahead = ahead
        self._settled = settled
        self._compression = compression
        self._limiter = limiter
        self._again: deque[tuple[Entry, m.Need]] = deque()
        self._needed: dict[int, m.Need] = {}
        self._wake = trio.Event()

    def wake(self) -> None:
        """Something may have become possible: a new order, an answer."""
        self._wake.set()

    async def transmit(self) -> None:
        """Send for ever. Raises one of `stream.BROKEN`."""
        while True:
            self._wake = trio.Event()
            if self._again:
                await self._resend(*self._again.popleft())
            elif (entry := self._line.next_to_send()) is not None:
                await self._send(entry)
            elif (piece := self._ahead.next()) is not None:
                await self._send_ahead(piece)
            else:
                await self._wake.wait()

    def handle(self, message: m.Message) -> None:
        """An answer. Raises `PeerProblem`, `RemoteProtocolError`."""
        match message:
            case m.Ack():
                self._finish(message.id, ACKED)
            case m.Need():
                self._need(message)
            case m.Refused():
                if message.retry:
                    raise PeerProblem(f"{message.code}: {message.detail}")
                self._finish(message.id, Outcome("refused", message.code, message.detail))
            case _:
                raise RemoteProtocolError(f"{type(message).__name__} answers no order")
        self.wake()

    # --- answers --------------------------------------------------------------------------------

    def _finish(self, order_id: int, outcome: Outcome) -> None:
        entry = self._line.sent(order_id)
        if entry is not None:
            self._end(entry, outcome)

    def _end(self, entry: Entry, outcome: Outcome) -> None:
        close_content(entry)
        self._needed.pop(entry.id, None)
        self._line.finish(entry, outcome)
        self._settled()

    def _need(self, need: m.Need) -> None:
        entry = self._line.sent(need.id)
        if entry is None or not isinstance(entry.order, Put):
            return
        if sum(max(0, last - first) for first, last in need.ranges) > entry.chunks:
            raise RemoteProtocolError(f"order {need.id} needs more chunks than there are")
        entry.needs += 1
        if entry.needs == 1:
            self._needed[entry.id] = need
            if entry.order.sent.draft:
                entry.order.on_changed(changed(entry.order.sent.chunks, need.ranges))
        else:
            self._again.append((entry, need))

    # --- orders ---------------------------------------------------------------------------------

    async def _send(self, entry: Entry) -> None:
        order = entry.order
        if not isinstance(order, Put):
            await self._stream.send(order.numbered(entry.id))
        elif order.replica.kind == "file" and not self._open(entry, order):
            self._ahead.scrap(order.sent.draft)
            self._end(entry, GONE)
        elif entry.size_bytes <= INLINE_BYTES and order.in_memory:
            await self._send_inline(entry, order)
        elif entry.chunks <= 1:
            await self._stream.send(_offer(entry, order))
            await self._send_chunks(entry, [(0, entry.chunks)])
        else:
            await self._stream.send(_offer(entry, order))
            await self._send_needed(entry)

    def _open(self, entry: Entry, order: Put) -> bool:
        close_content(entry)
        entry.fd = order.open_content()
        return entry.fd is not None

    async def _send_ahead(self, piece: Piece | Scrapped) -> None:
        if isinstance(piece, Scrapped):
            await self._stream.send(m.Scrap(piece.draft))
            return
        fd = piece.open_content()
        if fd is None:
            return
        data, offset = m.Ahead(piece.draft, piece.chunk, CHUNK_BYTES), piece.chunk * CHUNK_BYTES
        try:
            await self._send_content(data, fd, offset, self._first_level())
        finally:
            os.close(fd)

    async def _send_inline(self, entry: Entry, order: Put) -> None:
        frames: list[tuple[m.Message, bytes | memoryview]] = [(_offer(entry, order), b"")]
        if entry.fd is not None and entry.size_bytes:
            data = os.pread(entry.fd, entry.size_bytes, 0).ljust(entry.size_bytes, b"\0")
            frames.append((m.Data(entry.id, 0, len(data)), data))
        frames.append((m.Commit(entry.id), b""))
        entry.committed = True
        await self._stream.send_all(frames)

    async def _send_needed(self, entry: Entry) -> None:
        while entry.id not in self._needed and entry.outcome is None:
            if self._again:
                await self._resend(*self._again.popleft())
            else:
                self._wake = trio.Event()
                await self._wake.wait()
        if entry.outcome is None:
            await self._send_chunks(entry, self._needed.pop(entry.id).ranges)

    async def _resend(self, entry: Entry, need: m.Need) -> None:
        if entry.needs <= 1 + MAX_RESENDS:
            await self._send_chunks(entry, need.ranges)
            return
        await self._stream.send(m.Withdraw(entry.id))
        self._end(entry, CHANGED)

    async def _send_chunks(self, entry: Entry, ranges: list[tuple[int, int]]) -> None:
        for first, last in ranges:
            for index in range(max(0, first), min(last, entry.chunks)):
                if entry.outcome is not None:
                    return
                await self._send_chunk(entry, index)
        self._needed.pop(entry.id, None)
        entry.committed = True
        await self._stream.send(m.Commit(entry.id))

    async def _send_chunk(self, entry: Entry, index: int) -> None:
        assert entry.fd is not None and isinstance(entry.order, Put)
        offset = index * CHUNK_BYTES
        length = min(CHUNK_BYTES, entry.size_bytes - offset)
        data = m.Data(entry.id, index, length)
        level = self._level(entry, index)
        sent = await self._send_content(data, entry.fd, offset, level, entry.order.in_memory)
        entry.shrinks = level is None or sent < length

    async def _send_content(
        self,
        data: m.Data | m.Ahead,
        fd: int,
        offset: int,
        level: int | None,
        in_memory: bool = True,
    ) -> int:
        """Send a chunk, compressed with `level` if that is worth it; the payload's length."""
        length = data.raw_bytes
        if self._compression == "off" and self._stream.can_sendfile and in_memory:
            await self._stream.send_file(data, fd, offset, length)
            return length
        payload = await trio.to_thread.run_sync(
            _payload, fd, offset, length, level, limiter=self._limiter
        )
        await self._stream.send(data, payload)
        return len(payload)

    def _first_level(self) -> int | None:
        """For a chunk of which nothing is known."""
        if isinstance(self._compression, int):
            return self._compression
        return AUTO_LEVEL if self._compression == "auto" else None

    def _level(self, entry: Entry, index: int) -> int | None:
        if self._compression == "off":
            return None
        if self._compression == "auto":
            return AUTO_LEVEL if entry.shrinks or index % PROBE_EVERY == 0 else None
        return self._compression


def _offer(entry: Entry, order: Put) -> m.Offer:
    return m.Offer(entry.id, order.replica, order.sent.draft)


def close_content(entry: Entry) -> None:
    """Give the descriptor back."""
    fd, entry.fd = entry.fd, None
    if fd is not None:
        os.close(fd)


def _payload(fd: int, offset: int, length: int, level: int | None) -> bytes:
    """A chunk as it is sent; where the file has become shorter, zeros (the checksum tells)."""
    data = os.pread(fd, length, offset).ljust(length, b"\0")
    if level is None:
        return data
    packed = zstandard.ZstdCompressor(level=level).compress(data)
    return packed if len(packed) <= WORTH_IT * length else data
