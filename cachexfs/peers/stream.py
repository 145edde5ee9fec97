"""Frames over one connection: the edge between `wire` (pure) and trio.

On plain TCP a payload goes from a descriptor to the socket with sendfile(2), and from the socket
into the caller's buffer with recv_into: it is never a Python object. With TLS it has to be.

sendfile(2) runs in a thread: it is busy copying on behalf of TCP, and neither the event loop nor
the requests of programs shall wait for that.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import socket
import struct
from typing import Final

import trio

from cachexfs.peers.messages import Message
from cachexfs.peers.wire import Connection, Frame, Keys, NeedData

_READ_BYTES = 64 << 10
"""For headers: what of a payload comes along is copied once, so not more than this of a chunk."""
_AT_ONCE = struct.pack("ii", 1, 0)
"""As SO_LINGER: reset the connection when it is closed (socket(7))."""
_LOOK_UP_S = 0.25
"""A thread that sends looks this often whether it is still wanted, while the socket is full."""
_SOCKET_BUFFER_BYTES = 4 << 20
"""Room for a chunk in the kernel (it may grant less, net.core.rmem_max): fewer wake-ups."""

BROKEN: Final = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)
"""What an operation raises when the connection is gone."""


class Disconnected(Exception):
    """The other side closed the connection."""


class FrameStream:
    """`send...` may be called from several tasks; `receive` and `payload_into` from one."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._socket = stream.socket if isinstance(stream, trio.SocketStream) else None
        self._wire = Connection()
        self._sending = trio.Lock()
        self._thread = trio.CapacityLimiter(1)
        self._has_moved = False
        self._progress_at = self.received_at = trio.current_time()
        if self._socket is not None:
            _widen(self._socket)

    @property
    def progress_at(self) -> float:
        """When bytes last went either way, as far as was looked; on trio's clock, in seconds."""
        if self._has_moved:  # in a thread, which has no clock of the loop's
            self._progressed()
        return self._progress_at

    @property
    def can_sendfile(self) -> bool:
        """Whether `send_file` is possible: plain TCP."""
        return self._socket is not None

    async def greet(self) -> None:
        """Send the preface; comes before all else."""
        async with self._sending:
            await self._stream.send_all(self._wire.preface())

    def seal(self, keys: Keys) -> None:
        """The handshake is done: what follows carries MACs."""
        self._wire.seal(keys)

    async def send(self, message: Message, payload: bytes | memoryview = b"") -> None:
        """Send a frame from memory. Raises one of `BROKEN`."""
        await self.send_all([(message, payload)])

    async def probe(self, message: Message) -> None:
        """Ask whether the other side is there. That the kernel took it is no sign of that."""
        async with self._sending:
            await self._stream.send_all(self._wire.send(message))

    async def send_all(self, frames: list[tuple[Message, bytes | memoryview]]) -> None:
        """Send frames from memory with as few system calls as possible; none comes between."""
        async with self._sending:  # before anything is numbered, so that it leaves in that order
            data = bytearray()
            for message, payload in frames:
                data += self._wire.send(message, len(payload))
                data += payload
            await self._stream.send_all(data)
            self._progressed()

    async def send_file(self, message: Message, fd: int, offset: int, count: int) -> None:
        """Send a frame whose payload is `count` bytes of `fd`. Raises one of `BROKEN`.

        Where the file ends early, zeros complete the frame: the checksum tells.
        """
        assert self._socket is not None
        async with self._sending:
            await self._stream.send_all(self._wire.send(message, count))
            # Of its own: whoever closes the stream meanwhile does not give its number to another.
            sender = os.dup(self._socket.fileno())
            try:
                sent = await trio.to_thread.run_sync(
                    self._sendfile, sender, fd, offset, count, limiter=self._thread
                )
            finally:
                os.close(sender)
            if sent < count:
                await self._stream.send_all(bytes(count - sent))
            self._progressed()

    async def receive(self) -> Frame:
        """The next frame. Raises `Disconnected`, `RemoteProtocolError`, one of `BROKEN`."""
        while isinstance(event := self._wire.next_event(), NeedData):
            data = await self._stream.receive_some(_READ_BYTES)
            if not data:
                raise Disconnected
            self._arrived()
            self._wire.receive_data(data)
        return event

    async def payload_into(self, buffer: memoryview, silence_s: float = math.inf) -> None:
        """Receive the payload of the last frame; `buffer` is exactly as long.

        Raises `trio.TooSlowError` when nothing at all comes for `silence_s`.
        """
        done = self._wire.take_payload(buffer)
        with trio.fail_after(silence_s) as limit:
            while done < len(buffer):
                count = await self._receive_into(buffer[done:])
                if not count:
                    raise Disconnected
                self._arrived()
                limit.deadline = self._progress_at + silence_s
                self._wire.payload_placed(count)
                done += count

    def abort(self) -> None:
        """End the connection; what is still to be delivered is not, however long it may take."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
            self._socket.close()

    async def aclose(self) -> None:
        """Close the connection, at once."""
        await trio.aclose_forcefully(self._stream)

    def _arrived(self) -> None:
        self._progressed()
        self.received_at = self._progress_at

    def _progressed(self) -> None:
        self._has_moved, self._progress_at = False, trio.current_time()

    async def _receive_into(self, buffer: memoryview) -> int:
        if self._socket is not None:
            return await self._socket.recv_into(buffer)
        data = await self._stream.receive_some(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _sendfile(self, sender: int, fd: int, offset: int, count: int) -> int:
        """In a thread: send until it is done or the file ends; how much was sent."""
        full = select.poll()
        full.register(sender, select.POLLOUT)
        sent = 0
        while sent < count:
            try:
                more = os.sendfile(sender, fd, offset + sent, count - sent)
            except BlockingIOError:
                if not full.poll(_LOOK_UP_S * 1000):
                    trio.from_thread.check_cancelled()
                continue
            if not more:
                break
            sent += more
            self._has_moved = True
        return sent


def _widen(sock: trio.socket.SocketType) -> None:
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BUFFER_BYTES)
