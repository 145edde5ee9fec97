"""Pure rules about replicas: which make sense, and which of two is newer."""

from __future__ import annotations

import hashlib

import msgspec

from cachexfs.durability.checksum import chunk_count
from cachexfs.peers import paths
from cachexfs.peers.messages import Replica
from cachexfs.peers.refusal import Refusal

MAX_FILE_BYTES = 2 << 40
"""A file whose checksums still fit a header (`wire.MAX_HEADER_BYTES`), with room for the rest."""
MAX_XATTRS_BYTES = 64 << 10
"""What the kernel lets one file's attribute list have (XATTR_LIST_MAX)."""
MAX_VOLUME_BYTES = 4095
"""A volume is named after its source, a path."""


def check(replica: Replica) -> None:
    """Raises `Refusal` (BadPath, BadReplica) when a replica from the wire contradicts itself."""
    check_place(replica.volume, replica.path)
    if why := _contradiction(replica):
        raise Refusal("BadReplica", f"{replica.path[:200]!r}: {why}")


def check_place(volume: str, *where: bytes) -> None:
    """Raises `Refusal` (BadPath) for a volume or a path that is none."""
    if not 0 < len(volume.encode()) <= MAX_VOLUME_BYTES:
        raise Refusal("BadPath", "a volume's name is empty or too long")
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
    if len(replica.target) > paths.MAX_PATH_BYTES or b"\0" in replica.target:
        return "a symlink's target is too long or has a zero byte"
    if sum(len(name) + len(value) for name, value in replica.xattrs.items()) > MAX_XATTRS_BYTES:
        return "extended attributes of more than 64 KiB"
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
