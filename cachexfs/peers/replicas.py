"""Pure rules about replicas: which make sense, and which of two is newer."""

from __future__ import annotations

import hashlib

import msgspec

from cachexfs.durability.checksum import chunk_count
from cachexfs.peers import messages as m
from cachexfs.peers import paths
from cachexfs.peers.messages import Replica
from cachexfs.peers.refusal import Refusal

MAX_FILE_BYTES = 2 << 40
"""A file whose checksums still fit a header (`wire.MAX_HEADER_BYTES`), with room for the rest."""
MAX_XATTRS_BYTES = 64 << 10
"""What the kernel lets one file's attribute list have (XATTR_LIST_MAX)."""
MAX_XATTR_NAME_BYTES = 255
"""XATTR_NAME_MAX of Linux."""
MAX_VOLUME_BYTES = 4095
"""A volume is named after its source, a path."""
MAX_NODE_BYTES = 255
MAX_JOB_BYTES = 4095
"""A job may be known by the path of its cgroup only."""
NO_ID = 0xFFFFFFFF
"""(uid_t) -1: chown(2) takes it for "as it is", which would be whoever brings the file back."""

Change = m.Rename | m.Unlink | m.Link | m.Attrs | m.Durable


def check(replica: Replica) -> None:
    """Raises `Refusal` (BadPath, BadReplica) when a replica from the wire contradicts itself."""
    check_place(replica.volume, replica.path)
    if why := _contradiction(replica):
        raise Refusal("BadReplica", f"{replica.path[:200]!r}: {why}")


def check_change(change: Change) -> None:
    """Raises `Refusal` (BadPath, BadReplica) for an order that no honest owner gives."""
    match change:
        case m.Rename() | m.Link():
            check_place(change.volume, change.old, change.new)
        case m.Unlink() | m.Durable():
            check_place(change.volume, change.path)
        case m.Attrs():
            check_place(change.volume, change.path)
            if why := _unfit(change):
                raise Refusal("BadReplica", f"{change.path[:200]!r}: {why}")


def check_said(replica: Replica) -> None:
    """As `check`, for what a home is told: the content may not be known yet, or be none."""
    check_place(replica.volume, replica.path)
    if why := _unsayable(replica) or _unfit(replica):
        raise Refusal("BadReplica", f"{replica.path[:200]!r}: {why}")


def check_place(volume: str, *where: bytes) -> None:
    """Raises `Refusal` (BadPath) for a volume or a path that is none."""
    if not 0 < len(volume.encode()) <= MAX_VOLUME_BYTES or "\0" in volume:
        raise Refusal("BadPath", "a volume's name is empty, too long or has a zero byte")
    for path in where:
        try:
            paths.check(path)
        except paths.BadPath as error:
            raise Refusal("BadPath", str(error)) from None


def _contradiction(replica: Replica) -> str | None:
    if replica.kind == "gone":
        return "a tombstone is not stored by an offer"
    if replica.kind != "file" and (replica.size_bytes or replica.crcs):
        return f"a {replica.kind} has no content"
    if replica.size_bytes > MAX_FILE_BYTES:
        return f"{replica.size_bytes} bytes is more than one replica can have"
    if len(replica.crcs) != 4 * chunk_count(replica.size_bytes):
        return f"{len(replica.crcs)} bytes of checksums for {replica.size_bytes} bytes"
    if replica.kind == "symlink" and not replica.target:
        return "a symlink to nowhere"
    return _unsayable(replica) or _unfit(replica)


def _unsayable(replica: Replica) -> str | None:
    if not 0 < len(replica.owner.encode()) <= MAX_NODE_BYTES or not replica.owner.isprintable():
        return "the owner's name is empty, too long or cannot be printed"
    if len(replica.job.encode()) > MAX_JOB_BYTES:
        return "the job's name is too long"
    if len(replica.target) > paths.MAX_PATH_BYTES or b"\0" in replica.target:
        return "a symlink's target is too long or has a zero byte"
    return None


def _unfit(attributes: Replica | m.Attrs) -> str | None:
    """What would stop whoever gives a file these attributes."""
    if NO_ID in (attributes.uid, attributes.gid):
        return f"{NO_ID} is nobody's number"
    if sum(len(name) + len(value) for name, value in attributes.xattrs.items()) > MAX_XATTRS_BYTES:
        return "extended attributes of more than 64 KiB"
    if not all(0 < len(name) <= MAX_XATTR_NAME_BYTES for name in attributes.xattrs):
        return "an extended attribute's name is empty or too long"
    if any(b"\0" in name for name in attributes.xattrs):
        return "an extended attribute's name has a zero byte"
    return None


def settles(held: Replica, offered: Replica) -> bool:
    """Whether `held` is as new as `offered` or newer, so that nothing is to be done.

    One owner counts its versions; between two owners only their clocks can tell.
    """
    if held.owner == offered.owner:
        return held.version >= offered.version
    return held.closed_at_ns > offered.closed_at_ns


def content_name(replica: Replica) -> str:
    """A file name for the content of this replica, the same whenever it is offered again."""
    identity = (
        replica.volume, replica.path, replica.owner, replica.version, replica.closed_at_ns,
        replica.size_bytes, replica.crcs,
    )  # fmt: skip
    return hashlib.sha256(msgspec.msgpack.encode(identity)).hexdigest()
