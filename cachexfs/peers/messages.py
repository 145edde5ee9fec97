"""The vocabulary of the peers' protocol. Every frame's header is one of these, in MessagePack.

A peer keeps a namespace for each volume (a shared file system): path -> replica. The owner of a
file sends orders; the peer carries them out in the order of arrival and acknowledges each, after
it is on the peer's disk. So what a peer has acknowledged is always a prefix of what the owner did.

`id` numbers a request within one connection; every answer carries the id of its request. `path` is
relative to the volume's root, with `/` between names, never absolute, never with `.` or `..`.
Times are Unix times in nanoseconds.
"""

from __future__ import annotations

from typing import Literal

import msgspec

PROTOCOL_VERSION = 1

Kind = Literal["file", "symlink", "directory"]


class _Message(msgspec.Struct, frozen=True, tag=True, array_like=False, forbid_unknown_fields=True):
    pass


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """What a peer knows of one path: enough to bring it back without the owner or the source.

    `version` grows with every new content that the owner gives this path. `crcs` are the chunk
    checksums of `cachexfs.durability.checksum`. `durable` says that this version is committed on
    the shared file system, so the replica may be dropped for room.
    """

    volume: str
    path: str
    kind: Kind
    owner: str
    version: int
    closed_at_ns: int
    size_bytes: int = 0
    crcs: bytes = b""
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    atime_ns: int = 0
    mtime_ns: int = 0
    xattrs: dict[str, bytes] = {}
    target: str = ""
    job: str = ""
    durable: bool = False


# --- the handshake, before anything else -------------------------------------------------------


class Hello(_Message):
    """First message of the side that connects."""

    node: str
    nonce: bytes


class Challenge(_Message):
    """The listening side proves the secret and asks for the same."""

    node: str
    nonce: bytes
    proof: bytes


class Proof(_Message):
    """The connecting side proves the secret."""

    proof: bytes


class Welcome(_Message):
    """The connection is open. `free_bytes`: room left in the store."""

    free_bytes: int


# --- orders of an owner; each is answered by Ack or Refused -------------------------------------


class Offer(_Message):
    """Begin to store a file. Answered by `Need` (a symlink or a directory needs only Commit)."""

    id: int
    replica: Replica


class Data(_Message):
    """One chunk of an offered file, or of a fetched one; the payload is the chunk's bytes.

    `raw_bytes` is the chunk's length; where it is more than the payload's, the payload is
    compressed (zstandard).
    """

    id: int
    index: int
    raw_bytes: int


class Commit(_Message):
    """All chunks were sent: make the offered file whole and durable here, then acknowledge."""

    id: int


class Rename(_Message):
    """A file, or a directory with all that is below it, has a new path (replacing what is there)."""

    id: int
    volume: str
    old: str
    new: str
    exchange: bool = False


class Unlink(_Message):
    """The path, and all that is below it, is gone, if it is not newer than `at_ns`."""

    id: int
    volume: str
    path: str
    at_ns: int


class Link(_Message):
    """A second name for a file."""

    id: int
    volume: str
    old: str
    new: str


class Attrs(_Message):
    """New attributes of a path whose content is as before."""

    id: int
    volume: str
    path: str
    mode: int
    uid: int
    gid: int
    atime_ns: int
    mtime_ns: int
    xattrs: dict[str, bytes]


class Durable(_Message):
    """This version is committed on the shared file system."""

    id: int
    volume: str
    path: str
    version: int


# --- questions ----------------------------------------------------------------------------------


class List(_Message):
    """What is held below `prefix` ("" for all) of `volume`; answered by `Listing`s."""

    id: int
    volume: str
    prefix: str = ""


class Fetch(_Message):
    """Send chunks `first` to `last` (exclusive) of a path in this version, as `Data`, then `Ack`.

    A chunk whose checksum is wrong on the holder's disk is answered by `Damaged`, never sent.
    """

    id: int
    volume: str
    path: str
    version: int
    first: int
    last: int


class Volumes(_Message):
    """Which volumes are held; answered by `VolumeNames`."""

    id: int


class Ping(_Message):
    """Are you there? Answered by `Pong`."""

    id: int


# --- answers ------------------------------------------------------------------------------------


class Need(_Message):
    """Chunks of the offered file that the peer does not have, as [first, last) ranges."""

    id: int
    ranges: list[tuple[int, int]]


class Ack(_Message):
    """Done, and on disk here."""

    id: int


class Refused(_Message):
    """Not done. `code` is one of `REFUSALS`; `retry` says whether asking again can help."""

    id: int
    code: str
    detail: str
    retry: bool = False


class Listing(_Message):
    """A part of the answer to `List`; `more` says whether another follows."""

    id: int
    replicas: list[Replica]
    more: bool


class Damaged(_Message):
    """Chunk `index` does not match its checksum on the holder's disk."""

    id: int
    index: int


class VolumeNames(_Message):
    """Answer to `Volumes`."""

    id: int
    names: list[str]


class Pong(_Message):
    """Answer to `Ping`."""

    id: int
    free_bytes: int


REFUSALS = {
    "StoreFull": "the store has no room",
    "BadPath": "a path on the wire leaves the store",
    "BadChecksum": "a chunk does not match its checksum",
    "NotFound": "no such replica here",
    "StoreFailed": "the store's disk answered an error",
    "Unexpected": "a message that makes no sense here",
}

Message = (
    Hello | Challenge | Proof | Welcome | Offer | Data | Commit | Rename | Unlink | Link | Attrs
    | Durable | List | Fetch | Volumes | Ping | Need | Ack | Refused | Listing | Damaged
    | VolumeNames | Pong
)  # fmt: skip
