"""Reading directories: a snapshot of each, in an order that outlives the daemon.

The position after an entry is a hash of its name, not a count, so that a listing can go on after
entries came and went, or after a new daemon took the directory up.
"""

from __future__ import annotations

import bisect
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

    def close(self, ino: int) -> None:
        """A descriptor of the directory was closed."""
        self._snapshots.pop(ino, None)

    async def after(self, ino: int, position: int) -> list[Line]:
        """The entries of a directory after a position; 0 takes a new snapshot and begins.

        Descriptors of one directory share its snapshot: positions mean the same in all of them.
        """
        lines = self._snapshots.get(ino)
        if position == 0 or lines is None:
            entries = await self._view.entries(ino)
            lines = [Line(_position(name), name, found) for name, found in entries.items()]
            lines.sort(key=lambda line: (line.position, line.name))
            self._snapshots[ino] = lines
        begin = bisect.bisect_right(lines, position, key=lambda line: line.position)
        return lines[begin:]


def _position(name: bytes) -> int:
    """63 bits, never 0: positions travel as signed 64-bit numbers, and 0 is the beginning."""
    digest = hashlib.blake2b(name, digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1 | 1
