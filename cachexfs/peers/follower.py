"""Looks at the files that programs are writing, and lets the partners have what is complete.

Writes past the daemon (passthrough) are not seen, so progress is seen by looking at the blob: where
its data ends. `cachexfs.peers.chase` decides, `cachexfs.peers.ahead` remembers what was sent.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from functools import partial

import trio

from cachexfs.durability.checksum import crc_count
from cachexfs.durability.states import State
from cachexfs.peers.ahead import Sent
from cachexfs.peers.chase import Chase, Verdict
from cachexfs.peers.sender import PeerLink
from cachexfs.ram.node import Node
from cachexfs.ram.tier import Tier
from cachexfs.ram.tree import Tree

LOOK_EVERY_S = 0.05


class Follower:
    """`links`: the partners in use at this moment. `run` must be running for anything to happen."""

    def __init__(self, tree: Tree, tier: Tier, links: Callable[[], Iterable[PeerLink]]) -> None:
        self._tree = tree
        self._tier = tier
        self._links = links
        self._chases: dict[int, Chase] = {}
        self._told: dict[int, set[PeerLink]] = {}
        self._unsteady: set[int] = set()
        self._has_some = trio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if not self._chases:
                self._has_some = trio.Event()
                await self._has_some.wait()
            for ino, chase in list(self._chases.items()):
                self._look(ino, chase)
            await trio.sleep(LOOK_EVERY_S)

    def follow(self, node: Node) -> None:
        """A program begins to write this file."""
        if node.blob is None or node.ino in self._chases or node.ino in self._unsteady:
            return
        chase = self._chases[node.ino] = Chase(node.blob)
        chase.offered(crc_count(node.crcs))
        self._has_some.set()

    def take(self, node: Node, link: PeerLink) -> Sent:
        """The file is about to be offered to a partner: what that one has of it already."""
        self._told.get(node.ino, set()).discard(link)
        return link.ahead.take(node.ino)

    def offered(self, node: Node) -> None:
        """The file was offered to all who shall have it; what is written from now on is new."""
        self._scrap(node.ino)
        if (chase := self._chases.get(node.ino)) is None:
            return
        if node.writers:
            chase.offered(crc_count(node.crcs))
        else:
            self._chases.pop(node.ino)

    def give_up(self, ino: int) -> None:
        """What was sent ahead of this file had mostly changed."""
        self._unsteady.add(ino)
        self._forget(ino)

    # --- within ---------------------------------------------------------------------------------

    def _look(self, ino: int, chase: Chase) -> None:
        node = self._tree.nodes.get(ino)
        blob = node.blob if node is not None and node.names else None
        if node is None or blob is None or self._tier.is_overflowed(blob):
            self._unsteady.discard(ino)
            self._forget(ino)
            return
        if node.state is not State.OPEN and not node.writers:
            return  # closed: its offer is on its way
        try:
            verdict = chase.look(blob, *self._progress(blob, chase.seek_from))
        except OSError:
            self._forget(ino)
            return
        if verdict is Verdict.FOLLOW:
            self._tell(ino, chase)
        else:
            self._scrap(ino)
        if verdict is Verdict.STOP:
            self.give_up(ino)

    def _progress(self, blob: int, seek_from: int) -> tuple[int, int]:
        """Size, and where the data that begins at `seek_from` ends."""
        fd = self._tier.open(blob, os.O_RDONLY)
        try:
            size = os.fstat(fd).st_size
            return size, os.lseek(fd, seek_from, os.SEEK_HOLE) if seek_from < size else size
        except OSError as error:
            if error.errno != errno.ENXIO:  # it shrank between the two calls
                raise
            return 0, 0
        finally:
            os.close(fd)

    def _tell(self, ino: int, chase: Chase) -> None:
        if chase.complete <= chase.first:
            return
        opener = partial(self._open, chase.blob)
        for link in self._links():
            self._told.setdefault(ino, set()).add(link)
            link.send_ahead(ino, chase.first, chase.complete, opener)

    def _open(self, blob: int) -> int | None:
        try:
            return self._tier.open(blob, os.O_RDONLY)
        except OSError:
            return None

    def _scrap(self, ino: int) -> None:
        for link in self._told.pop(ino, ()):
            link.scrap(ino)

    def _forget(self, ino: int) -> None:
        self._chases.pop(ino, None)
        self._scrap(ino)
