"""Messages over a stream: the wire, and the socket that carries it."""

from __future__ import annotations

import trio

from lazerd.sensor.errors import Refused
from lazerd.sensor.messages import Message, Rejected
from lazerd.sensor.wire import Keys, Wire

PORTION_BYTES = 64 << 10


class Talk:
    """One side of a connection. Limits of time are the caller's."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._wire = Wire()

    def seal(self, keys: Keys) -> None:
        """The secret is proven; see `Wire.seal`."""
        self._wire.seal(keys)

    async def send(self, message: Message) -> None:
        """trio.BrokenResourceError when the other side is gone."""
        await self._stream.send_all(self._wire.send(message))

    async def receive(self) -> Message:
        """The next message. trio.BrokenResourceError at the end of the stream; `Refused` when the
        other side says why it ends; `ProtocolError`."""
        while (message := self._wire.next_message()) is None:
            data = await self._stream.receive_some(PORTION_BYTES)
            if not data:
                raise trio.BrokenResourceError("the other side has closed the connection")
            self._wire.receive(data)
        if isinstance(message, Rejected):
            raise Refused(f"the other side refused: {message.detail}")
        return message
