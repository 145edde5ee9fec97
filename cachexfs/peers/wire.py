"""The wire: bytes in, frames out, and back. It knows no socket; compare h11.

    preface = "CXFS" version:u16                                  once, from each side
    frame   = header_bytes:u32 payload_bytes:u32 header payload   numbers are big-endian
    sealed  = header_bytes:u32 payload_bytes:u32 mac:16 header payload

From the end of the handshake on, frames are sealed: the MAC is keyed BLAKE2b (RFC 7693) over the
number of the frame in its direction, the lengths and the header, with a key of this connection and
direction. A frame that is forged, changed, left out, repeated, sent back or of another connection
does not fit. The payload is not in it, because it never passes through here; what protects it are
the checksums in the (sealed) offer, which find accidents, and no attacker. TLS does.

The header is a message in MessagePack. Only `Data` and `Ahead` have a payload, which never passes
through here when it can be avoided: `next_event` says how much follows, `take_payload` hands over
what arrived together with the header, and the edge receives the rest straight into its own buffer
and reports it with `payload_placed`.

Whatever is illegal raises and leaves the state as it was: `LocalProtocolError` when this side
would break the protocol, `RemoteProtocolError` when the other side did.
"""

from __future__ import annotations

import hashlib
import hmac
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

MAC_BYTES = 16
"""An attempt to forge a frame ends the connection, so guessing does not get far."""

_PREFACE = struct.Struct("!4sH")
_LENGTHS = struct.Struct("!II")
_NUMBER = struct.Struct("!Q")
_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")
"""How an alert and a handshake of TLS begin (RFC 8446 section 5.1)."""


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


class Keys(NamedTuple):
    """What the two directions of one connection are sealed with."""

    outward: bytes
    inward: bytes


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
        self._outward: _Seal | None = None
        self._inward: _Seal | None = None

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
        lengths = _LENGTHS.pack(len(header), payload_bytes)
        return lengths + (self._outward.next(lengths, header) if self._outward else b"") + header

    # --- in -------------------------------------------------------------------------------------

    def seal(self, keys: Keys) -> None:
        """The handshake is done: the next frame, each way, is sealed, and headers may be long."""
        self._outward, self._inward = _Seal(keys.outward), _Seal(keys.inward)
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
        start = _LENGTHS.size + (MAC_BYTES if self._inward else 0)
        if len(self._received) < start + header_bytes:
            return NEED_DATA
        return self._read_frame(start, start + header_bytes, payload_bytes)

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
        if magic[:2] in _TLS_RECORDS:
            raise RemoteProtocolError(
                "the other side speaks TLS and this side does not (security.tls_cert, tls_key, "
                "tls_ca: the same on all nodes)"
            )
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

    def _read_frame(self, start: int, end: int, payload_bytes: int) -> Frame:
        received = memoryview(self._received)
        lengths, mac = bytes(received[: _LENGTHS.size]), bytes(received[_LENGTHS.size : start])
        header = bytes(received[start:end])
        received.release()
        if self._inward and not self._inward.fits(mac, lengths, header):
            raise RemoteProtocolError("a frame that the other side has not sent, or not now")
        message = self._decode(header)
        if payload_bytes and not isinstance(message, Data | Ahead):
            raise RemoteProtocolError(f"{type(message).__name__} came with a payload")
        if self._inward:
            self._inward.count += 1
        del self._received[:end]
        self._payload_left = payload_bytes
        return Frame(message, payload_bytes)

    def _decode(self, header: bytes) -> Message:
        try:
            return self._decoder.decode(header)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RemoteProtocolError(f"a header that is no message: {error}") from None


class _Seal:
    """MACs of one direction, frame by frame."""

    def __init__(self, key: bytes) -> None:
        self._keyed = hashlib.blake2b(key=key, digest_size=MAC_BYTES)
        self.count = 0

    def next(self, lengths: bytes, header: bytes) -> bytes:
        """The MAC of the next frame to be sent."""
        mac = self._mac(lengths, header)
        self.count += 1
        return mac

    def fits(self, mac: bytes, lengths: bytes, header: bytes) -> bool:
        """Whether this is the MAC of the next frame to arrive."""
        return hmac.compare_digest(mac, self._mac(lengths, header))

    def _mac(self, lengths: bytes, header: bytes) -> bytes:
        keyed = self._keyed.copy()
        keyed.update(_NUMBER.pack(self.count) + lengths)
        keyed.update(header)
        return keyed.digest()
