"""Pure: bytes in, messages out, and back. It knows no socket.

    frame = length:u32 body                    before the secret is proven
    frame = length:u32 mac:32 body             after it

The length is that of the body, big-endian; the body is a message in MessagePack. The MAC is
HMAC-SHA256 over the number of the frame in its direction and the body, with a key of this
connection and direction: a frame that is forged, left out, repeated or sent back does not fit. What
is said is not secret (GPU utilisation), so nothing is encrypted.

Whatever is illegal raises `ProtocolError`, and the connection is of no more use.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from lazerd.sensor.errors import ProtocolError
from lazerd.sensor.messages import PROOF_BYTES, Message

MAX_GREETING_BYTES = 1 << 10
"""A stranger gets no more memory than this."""
MAX_BODY_BYTES = 1 << 20
"""A report of 16 GPUs with 200 processes each takes about 250 KiB."""

_LENGTH = struct.Struct("!I")
_NUMBER = struct.Struct("!Q")


class Keys(NamedTuple):
    """What the two directions of one connection are sealed with."""

    outward: bytes
    inward: bytes


class Wire:
    """One side of one connection."""

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Message)
        self._received = bytearray()
        self._keys: Keys | None = None
        self._sent = 0
        self._taken = 0

    def seal(self, keys: Keys) -> None:
        """The secret is proven: from the next frame on, in both directions, MACs are used."""
        self._keys = keys

    def send(self, message: Message) -> bytes:
        """The frame to be sent."""
        body = self._encoder.encode(message)
        if len(body) > self._max_bytes:
            raise ProtocolError(f"a message of {len(body)} bytes: at most {self._max_bytes}")
        mac = b"" if self._keys is None else _mac(self._keys.outward, self._sent, body)
        self._sent += self._keys is not None
        return _LENGTH.pack(len(body)) + mac + body

    def receive(self, data: bytes | bytearray) -> None:
        """Bytes that arrived, in any portion."""
        self._received += data

    def next_message(self) -> Message | None:
        """The next message, or None before more bytes arrive."""
        if len(self._received) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._received)
        if length > self._max_bytes:
            raise ProtocolError(
                f"a message of {length} bytes is announced: at most {self._max_bytes}"
            )
        start = _LENGTH.size + (0 if self._keys is None else PROOF_BYTES)
        if len(self._received) < start + length:
            return None
        mac = bytes(self._received[_LENGTH.size : start])
        body = bytes(self._received[start : start + length])
        del self._received[: start + length]
        self._check(mac, body)
        return self._decode(body)

    def messages(self) -> Iterator[Message]:
        """All that have arrived whole. Seal between two of them by taking them one by one."""
        while (message := self.next_message()) is not None:
            yield message

    @property
    def _max_bytes(self) -> int:
        return MAX_GREETING_BYTES if self._keys is None else MAX_BODY_BYTES

    def _check(self, mac: bytes, body: bytes) -> None:
        if self._keys is None:
            return
        if not hmac.compare_digest(mac, _mac(self._keys.inward, self._taken, body)):
            raise ProtocolError("a message that the other side has not sent, or not now")
        self._taken += 1

    def _decode(self, body: bytes) -> Message:
        try:
            return self._decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ProtocolError(f"what arrived is no message: {error}") from None


def _mac(key: bytes, number: int, body: bytes) -> bytes:
    return hmac.digest(key, _NUMBER.pack(number) + body, "sha256")
