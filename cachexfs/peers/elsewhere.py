"""What other nodes have and the shared file system has not: the homes' answers, for the mount."""

from __future__ import annotations

from collections.abc import Callable

from cachexfs.peers.homes import Homes
from cachexfs.peers.messages import Entry
from cachexfs.ram.node import Node
from cachexfs.ram.remote import Remote


class Elsewhere:
    """Asks the homes about names. `key_of`: what they know a directory by that has a number here.

    `homes` is set when the daemon serves.
    """

    def __init__(self, node: str, key_of: Callable[[int], int | None]) -> None:
        self.homes: Homes | None = None
        self._node = node
        self._key_of = key_of

    async def find(self, parent: Node, name: bytes, *, on_source: bool) -> Remote | None:
        """What another node says of a name; None when none does. Waits `homes.WAIT_S` at most."""
        directory = self._key_of(parent.ino)
        if self.homes is None or directory is None:
            return None
        entry = await self.homes.find(directory, name, on_source=on_source)
        return self._of_others(entry) if entry is not None else None

    async def all_in(self, parent: Node) -> dict[bytes, Remote]:
        """What other nodes say of the names of a directory."""
        directory = self._key_of(parent.ino)
        if self.homes is None or directory is None:
            return {}
        entries = await self.homes.all_in(directory)
        found = {name: self._of_others(entry) for name, entry in entries.items()}
        return {name: remote for name, remote in found.items() if remote is not None}

    def _of_others(self, entry: Entry) -> Remote | None:
        return None if entry.replica.owner == self._node else remote_of(entry)


def remote_of(entry: Entry) -> Remote:
    """An entry as the mount knows it."""
    replica = entry.replica
    return Remote(
        kind=replica.kind,
        owner=replica.owner,
        stamp=entry.stamp,
        version=replica.version,
        path=replica.path,
        address=entry.address,
        ino=entry.ino,
        holders=tuple(entry.holders),
        size_bytes=replica.size_bytes,
        crcs=replica.crcs,
        mode=replica.mode,
        uid=replica.uid,
        gid=replica.gid,
        atime_ns=replica.atime_ns,
        mtime_ns=replica.mtime_ns,
        xattrs=replica.xattrs,
        target=replica.target,
        at=entry.at,
    )
