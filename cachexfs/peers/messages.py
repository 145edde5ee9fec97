"""The vocabulary of the peers' protocol. Every frame's header is one of these, in MessagePack.

A peer keeps a namespace for each volume (a shared file system): path -> replica. The owner of a
file sends orders; the peer carries them out in the order of arrival and acknowledges each, after
it is on the peer's disk. So what a peer has acknowledged is always a prefix of what the owner did.

`id` numbers a request; every answer carries the id of its request. The ids of orders grow through
a *session* (the life of the owner's link, over all its connections), and a peer remembers the last
id that it carried out for a session: an order is carried out once, however often it is sent. The
ids of questions mean nothing beyond one connection.

Paths, link targets and names of extended attributes are bytes, as Linux has them. A path is
relative to the volume's root, with `/` between names, never absolute, never with `.` or `..`
(`cachexfs.peers.paths`). Times are Unix times in nanoseconds.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

PROTOCOL_VERSION = 3

Kind = Literal["file", "symlink", "directory", "gone"]

_INT64_MAX = (1 << 63) - 1
Count = Annotated[int, msgspec.Meta(ge=0, le=_INT64_MAX)]
"""A size, a number or an id: it must also fit the manifest's 64-bit integers."""
Inode = Annotated[int, msgspec.Meta(ge=0)]
"""A number on the shared file system: of 64 bits all, as GlusterFS, whose numbers are hashes."""
TimeNs = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]
Id32 = Annotated[int, msgspec.Meta(ge=0, le=0xFFFFFFFF)]


class _Message(msgspec.Struct, frozen=True, tag=True, array_like=False, forbid_unknown_fields=True):
    pass


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """What a peer knows of one path: enough to bring it back without the owner or the source.

    `version` grows with every new content that the owner gives this path. `crcs` are the chunk
    checksums of `cachexfs.durability.checksum`. `durable` says that this version is committed on
    the shared file system, so the replica may be dropped for room. `parent` is the number of its
    directory there; 0 when that is not known. Kind "gone" is a tombstone, seen
    in listings only: the path, and what was below it, was deleted or renamed at `closed_at_ns`.
    """

    volume: str
    path: bytes
    kind: Kind
    owner: str
    version: Count
    closed_at_ns: TimeNs
    size_bytes: Count = 0
    crcs: bytes = b""
    mode: Id32 = 0o644
    uid: Id32 = 0
    gid: Id32 = 0
    atime_ns: TimeNs = 0
    mtime_ns: TimeNs = 0
    xattrs: dict[bytes, bytes] = {}
    target: bytes = b""
    job: str = ""
    durable: bool = False
    parent: Inode = 0


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What a node says of a name in a directory, until the shared file system agrees.

    `replica` describes what the name stands for; kind "gone" says that it stands for nothing.
    `stamp` grows with every change of the name: of two entries the greater one counts, by (stamp,
    owner). The content can be had from the owner, at `address` (empty: it serves nothing) under its
    own number `ino`, and from the members `holders`, under the replica's path and version. `at`:
    the shared file system has this very object already, `ino`, under another name: the number of
    the directory there, and the name.
    """

    name: bytes
    stamp: Count
    replica: Replica
    address: str = ""
    ino: Count = 0
    holders: list[str] = []
    at: tuple[Count, bytes] | None = None

    @property
    def rank(self) -> tuple[int, str]:
        """Of two entries for a name, the one with the greater rank counts."""
        return self.stamp, self.replica.owner


# --- the handshake, before anything else -------------------------------------------------------


class Hello(_Message, frozen=True):
    """First message of the side that connects. `session` is of its choice: see the top."""

    node: str
    nonce: bytes
    session: bytes


class Challenge(_Message, frozen=True):
    """The listening side proves the secret and asks for the same."""

    node: str
    nonce: bytes
    proof: bytes


class Proof(_Message, frozen=True):
    """The connecting side proves the secret."""

    proof: bytes


class Welcome(_Message, frozen=True):
    """The connection is open. `free_bytes`: room left in the store; `owners`: as in `Pong`.

    `done_id` is the last order of this session that was carried out here (0: none), whether or not
    the answer arrived; `refused` names those up to it that were not done, as (id, code, detail).
    `now_ns`, here and elsewhere: how far the peer's clock is (`cachexfs.clock`).
    """

    free_bytes: Count
    done_id: Count = 0
    refused: list[tuple[int, str, str]] = []
    owners: Count = 0
    now_ns: TimeNs = 0


# --- orders of an owner; each is answered by Ack or Refused -------------------------------------


class Offer(_Message, frozen=True):
    """Begin to store a path. Answered by `Need` (a symlink or a directory needs no chunk).

    A chunk may be sent without waiting for `Need`; one that is held already does no harm. `draft`
    names chunks that were sent ahead (0: none): those with the right checksum need not come again.
    """

    id: Count
    replica: Replica
    draft: Count = 0


class Data(_Message, frozen=True):
    """One chunk of an offered file, or of a fetched one; the payload is the chunk's bytes.

    `raw_bytes` is the chunk's length; where it is more than the payload's, the payload is
    compressed (zstandard).
    """

    id: Count
    index: Count
    raw_bytes: Count


class Ahead(_Message, frozen=True):
    """A whole chunk of a file that is still being written, before its offer. Not answered.

    It may change, or never be wanted. Numbers of drafts grow, and hold for one connection; nothing
    of a draft is seen by anybody before an offer takes it. `raw_bytes` as in `Data`.
    """

    draft: Count
    index: Count
    raw_bytes: Count


class Scrap(_Message, frozen=True):
    """No offer will come for this draft: forget it. Not answered."""

    draft: Count


class Commit(_Message, frozen=True):
    """All chunks were sent: make the offered file whole and durable here, then acknowledge.

    Answered by `Need` again where chunks are missing or did not match their checksum; later orders
    wait until those were sent and committed again, or the offer was withdrawn.
    """

    id: Count


class Withdraw(_Message, frozen=True):
    """The offered content is no more: forget the offer. Not answered."""

    id: Count


class Rename(_Message, frozen=True):
    """A file, or a directory with all below it, has a new path (replacing what is there)."""

    id: Count
    volume: str
    old: bytes
    new: bytes
    exchange: bool = False


class Unlink(_Message, frozen=True):
    """The path, and all that is below it, is gone, if it is not newer than `at_ns`."""

    id: Count
    volume: str
    path: bytes
    at_ns: TimeNs


class Link(_Message, frozen=True):
    """A second name for a file."""

    id: Count
    volume: str
    old: bytes
    new: bytes


class Attrs(_Message, frozen=True):
    """New attributes of a path whose content is as before."""

    id: Count
    volume: str
    path: bytes
    mode: Id32
    uid: Id32
    gid: Id32
    atime_ns: TimeNs
    mtime_ns: TimeNs
    xattrs: dict[bytes, bytes]


class Durable(_Message, frozen=True):
    """This version is committed on the shared file system."""

    id: Count
    volume: str
    path: bytes
    version: Count


# --- questions ----------------------------------------------------------------------------------


class List(_Message, frozen=True):
    """What is held below `prefix` (empty for all) of `volume`; answered by `Listing`s."""

    id: Count
    volume: str
    prefix: bytes = b""


class Fetch(_Message, frozen=True):
    """Send chunks `first` to `last` (exclusive) of a path in this version, as `Data`, then `Ack`.

    A chunk whose checksum is wrong on the holder's disk is answered by `Damaged`, never sent, and
    that ends the answer.
    """

    id: Count
    volume: str
    path: bytes
    version: Count
    first: Count
    last: Count


class Describe(_Message, frozen=True):
    """Of an owner: what is this version of your file, with checksums? Answered by `Described`."""

    id: Count
    ino: Count
    version: Count


class Read(_Message, frozen=True):
    """Of an owner: as `Fetch`, for the file that it knows by this number."""

    id: Count
    ino: Count
    version: Count
    first: Count
    last: Count


class Register(_Message, frozen=True):
    """Of a home: keep these entries of a directory, by its number on the shared file system.

    Answered by `Registered`. They are forgotten after `register.EXPIRE_S` unless they come again.
    """

    id: Count
    volume: str
    directory: Inode
    entries: list[Entry]


class Forget(_Message, frozen=True):
    """Of a home: the shared file system agrees on these names, up to these stamps. Then `Ack`."""

    id: Count
    volume: str
    directory: Inode
    names: list[tuple[bytes, Count]]


class Settled(msgspec.Struct, frozen=True):
    """A name on which the shared file system agrees with its owner since `done_ns`: 0 where it was
    not the owner's to publish. `stamp` and `kind` are those of the last entry."""

    name: bytes
    stamp: Count
    done_ns: TimeNs = 0
    kind: Kind = "gone"


class Missed(_Message, frozen=True):
    """As `Forget`, to a home that did not answer when these names were settled.

    Then `Registered`, with what other nodes had of these names meanwhile.
    """

    id: Count
    volume: str
    directory: Inode
    settled: list[Settled]


class Find(_Message, frozen=True):
    """Of a home: what is said of a name? Answered by one `Found`."""

    id: Count
    volume: str
    directory: Inode
    name: bytes


class FindAll(_Message, frozen=True):
    """Of a home: what is said of the names of a directory beyond `after`? Answered by `Found`."""

    id: Count
    volume: str
    directory: Inode
    after: bytes = b""


class Volumes(_Message, frozen=True):
    """Which volumes are held; answered by `VolumeNames`."""

    id: Count


class Ping(_Message, frozen=True):
    """Are you there? Answered by `Pong`."""

    id: Count


# --- answers ------------------------------------------------------------------------------------


class Need(_Message, frozen=True):
    """Chunks of the offered file that the peer does not have, as [first, last) ranges."""

    id: Count
    ranges: list[tuple[int, int]]


class Ack(_Message, frozen=True):
    """Done, and on disk here."""

    id: Count


class Refused(_Message, frozen=True):
    """Not done. `code` is one of `REFUSALS`; `retry` says whether asking again can help.

    After a refused order with `retry`, the peer carries out nothing more on this connection, so
    that no later order overtakes the one to be sent again.
    """

    id: Count
    code: str
    detail: str
    retry: bool = False


class Listing(_Message, frozen=True):
    """A part of the answer to `List`; `more` says whether another follows."""

    id: Count
    replicas: list[Replica]
    more: bool


class Damaged(_Message, frozen=True):
    """Chunk `index` does not match its checksum on the holder's disk."""

    id: Count
    index: Count


class VolumeNames(_Message, frozen=True):
    """Answer to `Volumes`."""

    id: Count
    names: list[str]


class Pong(_Message, frozen=True):
    """Answer to `Ping`. `owners`: how many nodes have sent replicas since the peer started."""

    id: Count
    free_bytes: Count
    owners: Count = 0
    now_ns: TimeNs = 0


class Described(_Message, frozen=True):
    """Answer to `Describe`."""

    id: Count
    replica: Replica


class Registered(_Message, frozen=True):
    """Answer to `Register`: the entries that count instead of those that do not."""

    id: Count
    beaten_by: list[Entry] = []
    now_ns: TimeNs = 0


class Found(_Message, frozen=True):
    """Answer to `Find` and `FindAll`. `in_directory`: how many names the home knows there."""

    id: Count
    entries: list[Entry]
    in_directory: Count
    more: bool = False
    now_ns: TimeNs = 0


class Superseded(_Message, frozen=True):
    """Not asked for: another node's entry counts now, and not the receiver's any more."""

    volume: str
    directory: Inode
    entry: Entry


REFUSALS = {
    "StoreFull": "the store has no room",
    "BadPath": "a path on the wire leaves the store",
    "BadChecksum": "a chunk does not match its checksum",
    "BadReplica": "what is said of a file contradicts itself",
    "BadSecret": "the two nodes do not share the secret",
    "Busy": "too many connections are open",
    "NotFound": "no such replica here",
    "StoreFailed": "the store's disk answered an error",
    "RegisterFull": "the register has no room",
    "Unexpected": "a message that makes no sense here",
}

Message = (
    Hello | Challenge | Proof | Welcome | Offer | Data | Ahead | Scrap | Commit | Withdraw | Rename
    | Unlink | Link | Attrs | Durable | List | Fetch | Describe | Read | Register | Forget | Find
    | FindAll | Volumes | Ping | Need | Ack | Refused | Listing | Damaged | VolumeNames | Pong
    | Described | Registered | Found | Superseded | Missed
)  # fmt: skip
