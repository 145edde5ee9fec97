"""The wire: bytes in, frames out, and back. It knows no socket; compare h11.

    preface = "CXFS" version:u16                                  once, from each side
    frame   = header_bytes:u32 payload_bytes:u32 header payload   numbers are big-endian

The header is a message in MessagePack. Only `Data` and `Ahead` have a payload, which never passes
through here when it can be avoided: `next_event` says how much follows, `take_payload` hands over
what arrived together with the header, and the edge receives the rest straight into its own buffer
and reports it with `payload_placed`.

Whatever is illegal raises and leaves the state as it was: `LocalProtocolError` when this side
would break the protocol, `RemoteProtocolError` when the other side did.
"""

from __future__ import annotations

import struct
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from cachexfs.durability.checksum import CHUNK_BYTES
from cachexfs.peers.messages import PROTOCOL_VERSION, Ahead, Data, Message

MAGIC = b"CXFS"
MAX_HEADER_BYTES = 4 << 20
"""An offer carries 4 bytes of checksum per chunk of 4 MiB: with this a file may have 2 TiB."""
MAX_GREETING_BYTES = 4 << 10
"""Before the secret is proven nobody needs more, and a stranger gets no more memory than this."""
MAX_PAYLOAD_BYTES = CHUNK_BYTES
"""A payload is one chunk; a chunk that compression would make longer is sent as it is."""

_PREFACE = struct.Struct("!4sH")
_LENGTHS = struct.Struct("!II")


class ProtocolError(Exception):
    """The protocol was broken; the connection is of no more use."""


class LocalProtocolError(ProtocolError):
    """This side asked for something that the protocol does not allow."""


class RemoteProtocolError(ProtocolError):
    """The other side sent something that the protocol does not allow."""


class Frame(NamedTuple):
    """A message, and how many bytes of payload follow it."""

    message: Message
    payload_bytes: int


class NeedData(Enum):
    """Nothing to say before more bytes arrive."""

    NEED_DATA = "NEED_DATA"


NEED_DATA: Final = NeedData.NEED_DATA


class Connection:
    """One side of one connection. `version` is for tests; the rest of the world has one."""

    def __init__(self, version: int = PROTOCOL_VERSION) -> None:
        self._version = version
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Message)
        self._received = bytearray()
        self._preface_seen = False
        self._max_header_bytes = MAX_GREETING_BYTES
        self._payload_left = 0

    # --- out ------------------------------------------------------------------------------------

    def preface(self) -> bytes:
        """What this side sends before its first frame."""
        return _PREFACE.pack(MAGIC, self._version)

    def send(self, message: Message, payload_bytes: int = 0) -> bytes:
        """The frame up to its payload, which the edge sends itself, in this length exactly."""
        if payload_bytes and not isinstance(message, Data | Ahead):
            raise LocalProtocolError(f"{type(message).__name__} has no payload")
        if not 0 <= payload_bytes <= MAX_PAYLOAD_BYTES:
            raise LocalProtocolError(f"a payload of {payload_bytes} bytes is more than a chunk")
        header = self._encoder.encode(message)
        if len(header) > MAX_HEADER_BYTES:
            raise LocalProtocolError(f"a header of {len(header)} bytes: at most {MAX_HEADER_BYTES}")
        return _LENGTHS.pack(len(header), payload_bytes) + header

    # --- in -------------------------------------------------------------------------------------

    def trust(self) -> None:
        """The handshake is done: headers may be as long as the protocol allows."""
        self._max_header_bytes = MAX_HEADER_BYTES

    def receive_data(self, data: bytes | bytearray | memoryview) -> None:
        """Bytes that arrived, in any portion."""
        self._received += data

    def next_event(self) -> Frame | NeedData:
        """The next frame, or `NEED_DATA`. The payload of a frame is to be taken before the next."""
        if self._payload_left:
            raise LocalProtocolError(f"{self._payload_left} bytes of payload were not taken")
        if not self._preface_seen and not self._read_preface():
            return NEED_DATA
        if len(self._received) < _LENGTHS.size:
            return NEED_DATA
        header_bytes, payload_bytes = _LENGTHS.unpack_from(self._received)
        self._check_lengths(header_bytes, payload_bytes)
        end = _LENGTHS.size + header_bytes
        if len(self._received) < end:
            return NEED_DATA
        return self._read_frame(end, payload_bytes)

    @property
    def payload_left(self) -> int:
        """Bytes of the current payload that were neither taken nor placed."""
        return self._payload_left

    def take_payload(self, buffer: memoryview) -> int:
        """Move what has arrived of the payload to the front of `buffer`; how many bytes."""
        count = min(len(self._received), self._payload_left, len(buffer))
        buffer[:count] = memoryview(self._received)[:count]
        del self._received[:count]
        self._payload_left -= count
        return count

    def payload_placed(self, count: int) -> None:
        """The edge has received `count` bytes of the payload straight into its own buffer."""
        if self._received:
            raise LocalProtocolError("bytes that arrived earlier were not taken")
        if not 0 <= count <= self._payload_left:
            raise LocalProtocolError(f"{count} bytes placed of {self._payload_left}")
        self._payload_left -= count

    def _read_preface(self) -> bool:
        if len(self._received) < _PREFACE.size:
            return False
        magic, version = _PREFACE.unpack_from(self._received)
        if magic != MAGIC:
            raise RemoteProtocolError("the other side does not speak the protocol of CacheX-FS")
        if version != self._version:
            raise RemoteProtocolError(
                f"the other side speaks version {version} of the peers' protocol, "
                f"this side version {self._version}: run the same release on both"
            )
        del self._received[: _PREFACE.size]
        self._preface_seen = True
        return True

    def _check_lengths(self, header_bytes: int, payload_bytes: int) -> None:
        if header_bytes > self._max_header_bytes:
            raise RemoteProtocolError(
                f"a header of {header_bytes} bytes: at most {self._max_header_bytes} here"
            )
        if payload_bytes > MAX_PAYLOAD_BYTES:
            raise RemoteProtocolError(
                f"a payload of {payload_bytes} bytes: at most {MAX_PAYLOAD_BYTES}"
            )

    def _read_frame(self, end: int, payload_bytes: int) -> Frame:
        message = self._decode(bytes(memoryview(self._received)[_LENGTHS.size : end]))
        if payload_bytes and not isinstance(message, Data | Ahead):
            raise RemoteProtocolError(f"{type(message).__name__} came with a payload")
        del self._received[:end]
        self._payload_left = payload_bytes
        return Frame(message, payload_bytes)

    def _decode(self, header: bytes) -> Message:
        try:
            return self._decoder.decode(header)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RemoteProtocolError(f"a header that is no message: {error}") from None
