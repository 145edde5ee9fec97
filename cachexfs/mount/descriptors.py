"""One descriptor for each inode that is open: of its blob, or of the source's file as long as
nobody writes.

A file handle is made from the inode number, not kept in a table: `handle = inode * 2 + writing`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import trio

from cachexfs.mount.ports import Fetching, Source
from cachexfs.ram.node import Node
from cachexfs.ram.tier import Tier


def handle_of(node: Node, *, writing: bool) -> int:
    """The file handle for an open of a node."""
    return node.ino * 2 + writing


def inode_of(handle: int) -> tuple[int, bool]:
    """The inode number of a file handle, and whether it was opened for writing."""
    return handle // 2, bool(handle % 2)


@dataclass
class Opened:
    """The descriptor in use, and those it replaced, which a thread may still be reading from.

    `is_fetched`: the content comes from other nodes, piece by piece.

    Whoever brings other content to the file, or moves it, holds `lock` meanwhile.
    """

    fd: int
    is_blob: bool
    is_fetched: bool = False
    replaced: list[int] = field(default_factory=list)
    lock: trio.Lock = field(default_factory=trio.Lock)

    def replace(self, fd: int) -> None:
        """Go on with the descriptor of a blob."""
        self.replaced.append(self.fd)
        self.fd, self.is_blob, self.is_fetched = fd, True, False

    def move(self, fd: int) -> None:
        """The same descriptor leads to the new place: the pages in the old one are free at once."""
        os.dup2(fd, self.fd, inheritable=False)
        os.close(fd)

    def close(self) -> None:
        """Close it, and those that it replaced."""
        for fd in (self.fd, *self.replaced):
            os.close(fd)


class Descriptors:
    """What is open, by inode number. Raises OSError."""

    def __init__(self, tier: Tier, source: Source, fetching: Fetching | None) -> None:
        self._tier = tier
        self._source = source
        self._fetching = fetching
        self._open: dict[int, Opened] = {}

    def get(self, node: Node) -> Opened | None:
        """The descriptor of a node; None when it has none."""
        return self._open.get(node.ino)

    def fd(self, ino: int) -> int | None:
        """As `get`, by inode number, and only the descriptor itself."""
        found = self._open.get(ino)
        return found.fd if found else None

    def take(self, node: Node, fd: int) -> None:
        """The descriptor of a blob that was just made for a new file."""
        self._open[node.ino] = Opened(fd, is_blob=True)

    async def ensure(self, node: Node) -> Opened:
        """The descriptor of a node, opened now if it has none."""
        if (found := self._open.get(node.ino)) is not None:
            return found
        if node.blob is not None:
            opened = Opened(self._tier.open(node.blob), is_blob=True)
        elif node.remote is not None and self._fetching is not None:
            opened = await self._fetched(node)
        else:
            opened = await self._of_source(node)
        if (raced := self._open.get(node.ino)) is not None:
            opened.close()
            return raced
        if node.blob is not None and not opened.is_blob:  # emptied by its path while we asked
            opened.close()
            opened = Opened(self._tier.open(node.blob), is_blob=True)
        self._open[node.ino] = opened
        return opened

    async def _of_source(self, node: Node) -> Opened:
        """The source's file; where that is ill, what members hold of it."""
        try:
            return Opened(await self._source.open(node), is_blob=False)
        except OSError as error:
            if not self._source.is_trouble(error):
                raise
            if self._fetching is None or not await self._fetching.find_replica(node):
                raise
            return await self._fetched(node)

    async def _fetched(self, node: Node) -> Opened:
        assert self._fetching is not None
        return Opened(await self._fetching.open(node), is_blob=False, is_fetched=True)

    def close(self, node: Node) -> None:
        """The last open of a node is gone."""
        if (closed := self._open.pop(node.ino, None)) is not None:
            closed.close()
