"""What the mount knows of one file, directory or symbolic link."""

from __future__ import annotations

import os
import stat
from typing import Literal, NamedTuple

import msgspec

from cachexfs.durability.actions import Slot
from cachexfs.durability.life import Life
from cachexfs.durability.states import State
from cachexfs.ram.remote import Remote

ROOT = 1
"""Inode number of the mount's root (FUSE_ROOT_ID of linux/fuse.h)."""

HIDDEN = b".cachexfs-"
"""Names with this beginning are ours on the shared file system, and are not shown in the mount."""

Kind = Literal["file", "directory", "symlink", "special"]


class Origin(NamedTuple):
    """Identity of an object on the shared file system."""

    dev: int
    ino: int


class Signature(NamedTuple):
    """What tells two contents of one object apart without reading them."""

    size_bytes: int
    mtime_ns: int


class Node(msgspec.Struct, kw_only=True):
    """One inode of the mount.

    A captured file has a `life` and, while its bytes are ours, a `blob` in the RAM tier, whose own
    inode carries mode, owner, size and times. A node without a life is only known from the shared
    file system; it is forgotten when the kernel forgets it. `mode` to `ctime_ns` are used where
    no other object carries them: local directories and symbolic links, and what was changed here
    while the shared file system was ill and is `ahead` of what it has there.

    `names` are all its names as programs see them; `place` is where the shared file system has it
    now, which differs while a rename is still to be made there. `retained` are blobs
    of older versions that still wait to be published. `settled_as` is what the blob looked like
    when it last settled, and `backing_id` is set while the kernel reads and writes it past us.
    `trusted_as` is what it looked like when its set-ID bits were given to it.
    `remote`: another node has it, and the shared file system does not have it yet.
    `counted` are the requests by which `opens` and `writers` changed last. `unsure`: it settled
    while a program could still write it past us.
    """

    ino: int
    kind: Kind
    names: set[Slot] = set()
    place: Slot | None = None
    origin: Origin | None = None
    signature: Signature | None = None

    life: Life | None = None
    blob: int | None = None
    crcs: bytes = b""
    crcs_version: int = 0
    retained: dict[int, int] = {}
    job: str = ""
    settled_at_ns: int = 0
    pinned: bool = False
    reason: str = ""

    mode: int = 0
    uid: int = 0
    gid: int = 0
    atime_ns: int = 0
    mtime_ns: int = 0
    ctime_ns: int = 0
    ahead: bool = False
    target: bytes = b""
    xattrs: dict[bytes, bytes] = {}

    remote: Remote | None = None
    settled_as: Signature | None = None
    trusted_as: Signature | None = None
    backing_id: int | None = None
    counted: list[int] = []
    unsure: bool = False
    lookups: int = 0
    opens: int = 0
    writers: int = 0

    @property
    def slot(self) -> Slot | None:
        """One of its names: the first in order, None without any."""
        return min(self.names, default=None)

    @property
    def is_captured(self) -> bool:
        """Whether its present bytes are ours to keep."""
        return self.blob is not None

    @property
    def state(self) -> State:
        """How safe it is; what is only known from the shared file system is durable."""
        return self.life.state if self.life else State.DURABLE

    @property
    def has_known_crcs(self) -> bool:
        """Whether `crcs` belong to the present content."""
        return self.life is not None and self.crcs_version == self.life.version


def keep_status(node: Node, status: os.stat_result) -> None:
    """Keep in a node what a status says, for when nothing else carries it."""
    node.mode, node.uid, node.gid = status.st_mode, status.st_uid, status.st_gid
    node.atime_ns, node.mtime_ns = status.st_atime_ns, status.st_mtime_ns
    node.ctime_ns = status.st_ctime_ns


def kind_of(mode: int) -> Kind:
    """The kind for a `st_mode`."""
    return _KINDS.get(stat.S_IFMT(mode), "special")


_KINDS: dict[int, Kind] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symlink",
}
