"""Frames over one connection: the edge between `wire` (pure) and trio.

On plain TCP a payload goes from a descriptor to the socket with sendfile(2), and from the socket
into the caller's buffer with recv_into: it is never a Python object. With TLS it has to be.
"""

from __future__ import annotations

import os
import socket
from typing import Final

import trio

from cachexfs.peers.messages import Message
from cachexfs.peers.wire import Connection, Frame, NeedData

_READ_BYTES = 64 << 10
"""For headers: what of a payload comes along is copied once, so not more than this of a chunk."""
_SENDFILE_BYTES = 1 << 20
"""At most this in one sendfile: the event loop serves others in between."""
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
        self.progress_at = trio.current_time()
        self.received_at = self.progress_at
        if self._socket is not None:
            _widen(self._socket)

    @property
    def can_sendfile(self) -> bool:
        """Whether `send_file` is possible: plain TCP."""
        return self._socket is not None

    async def greet(self) -> None:
        """Send the preface; comes before all else."""
        async with self._sending:
            await self._stream.send_all(self._wire.preface())

    def trust(self) -> None:
        """The handshake is done."""
        self._wire.trust()

    async def send(self, message: Message, payload: bytes | memoryview = b"") -> None:
        """Send a frame from memory. Raises one of `BROKEN`."""
        await self.send_all([(message, payload)])

    async def send_all(self, frames: list[tuple[Message, bytes | memoryview]]) -> None:
        """Send frames from memory with as few system calls as possible; none comes between."""
        data = bytearray()
        for message, payload in frames:
            data += self._wire.send(message, len(payload))
            data += payload
        async with self._sending:
            await self._stream.send_all(data)
            self.progress_at = trio.current_time()

    async def send_file(self, message: Message, fd: int, offset: int, count: int) -> None:
        """Send a frame whose payload is `count` bytes of `fd`. Raises one of `BROKEN`.

        Where the file ends early, zeros complete the frame: the checksum tells.
        """
        header = self._wire.send(message, count)
        async with self._sending:
            await self._stream.send_all(header)
            end = offset + count
            while offset < end:
                sent = await self._sendfile(fd, offset, min(end - offset, _SENDFILE_BYTES))
                if not sent:
                    await self._stream.send_all(bytes(end - offset))
                    break
                offset += sent
                self.progress_at = trio.current_time()

    async def receive(self) -> Frame:
        """The next frame. Raises `Disconnected`, `RemoteProtocolError`, one of `BROKEN`."""
        while isinstance(event := self._wire.next_event(), NeedData):
            data = await self._stream.receive_some(_READ_BYTES)
            if not data:
                raise Disconnected
            self._arrived()
            self._wire.receive_data(data)
        return event

    async def payload_into(self, buffer: memoryview) -> None:
        """Receive the payload of the last frame; `buffer` is exactly as long."""
        done = self._wire.take_payload(buffer)
        while done < len(buffer):
            count = await self._receive_into(buffer[done:])
            if not count:
                raise Disconnected
            self._arrived()
            self._wire.payload_placed(count)
            done += count

    async def aclose(self) -> None:
        """Close the connection, at once."""
        await trio.aclose_forcefully(self._stream)

    def _arrived(self) -> None:
        self.progress_at = self.received_at = trio.current_time()

    async def _receive_into(self, buffer: memoryview) -> int:
        if self._socket is not None:
            return await self._socket.recv_into(buffer)
        data = await self._stream.receive_some(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    async def _sendfile(self, fd: int, offset: int, count: int) -> int:
        assert self._socket is not None
        await trio.lowlevel.checkpoint_if_cancelled()
        while True:
            try:
                return os.sendfile(self._socket.fileno(), fd, offset, count)
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._socket)


def _widen(sock: trio.socket.SocketType) -> None:
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BUFFER_BYTES)
