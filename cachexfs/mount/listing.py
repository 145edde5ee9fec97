"""Reading directories: a snapshot for each open, in an order that outlives the daemon.

The position after an entry is a hash of its name, not a count, so that a listing can go on after
entries came and went, or after a new daemon took the directory up.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from cachexfs.mount.view import Found, View


@dataclass(frozen=True)
class Line:
    """One entry of a listing and the position after it."""

    position: int
    name: bytes
    found: Found


class Listings:
    """Open directories. Raises OSError."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._snapshots: dict[int, list[Line]] = {}
        self._inodes: dict[int, int] = {}
        self._next = 1

    def open(self, ino: int) -> int:
        """A handle for reading a directory."""
        handle, self._next = self._next, self._next + 1
        self._inodes[handle] = ino
        return handle

    def close(self, handle: int) -> None:
        """The handle is not used any more."""
        self._snapshots.pop(handle, None)
        self._inodes.pop(handle, None)

    def inode(self, handle: int) -> int:
        """The directory of a handle."""
        return self._inodes[handle]

    async def after(self, handle: int, position: int) -> list[Line]:
        """The entries after a position; 0 takes a new snapshot and begins."""
        if position == 0 or handle not in self._snapshots:
            entries = await self._view.entries(self._inodes[handle])
            lines = [Line(_position(name), name, found) for name, found in entries.items()]
            self._snapshots[handle] = sorted(lines, key=lambda line: (line.position, line.name))
        return [line for line in self._snapshots[handle] if line.position > position]


def _position(name: bytes) -> int:
    """63 bits, never 0: positions travel as signed 64-bit numbers, and 0 is the beginning."""
    digest = hashlib.blake2b(name, digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1 | 1
