"""What the kernel does past us: which files it reads and writes itself, and what that has changed.

The books of it (`Node.backing_id`, `Node.settled_as`, `Node.unsure`) are journaled with the node:
the kernel goes on while no daemon is alive.
"""

from __future__ import annotations

import logging

from cachexfs.mount.datapath import Choice, DataPath, Use, Wish, choose
from cachexfs.mount.link.backings import Backings
from cachexfs.mount.ports import Safety
from cachexfs.mount.reach import Place, Reach
from cachexfs.ram.node import Node, Signature
from cachexfs.ram.room import Room
from cachexfs.ram.tier import Tier

log = logging.getLogger(__name__)

ROOM_BYTES = 64 << 20
"""With less room than this in the RAM tier, new writers go through the daemon, which can hold them
back; past it, the kernel would tell them ENOSPC."""


class Passthrough:
    """Files that the kernel reads and writes itself.

    `backings`: set when the kernel link has agreed on passthrough; None without. It stays when
    files are refused later: what was agreed on with the kernel stays, and so does what is open.
    """

    def __init__(self, tier: Tier, safety: Safety, room: Room) -> None:
        self._tier = tier
        self._safety = safety
        self._room = room
        self.backings: Backings | None = None
        self.reach = Reach("the kernel has not said yet what it can do")

    def agreed(self, backings: Backings) -> None:
        """The kernel offers passthrough, and we have taken it."""
        self.backings, self.reach = backings, Reach()

    def cannot_be_had(self, obstacle: str) -> None:
        """The link works without passthrough."""
        self.backings, self.reach = None, Reach(obstacle)

    def choose(self, node: Node, writing: bool) -> Choice:
        """The path for one more open of a node."""
        wish = Wish(
            writing=writing,
            in_ram=node.blob is not None,
            tier_is_full=not self._room.has(ROOM_BYTES),
            can_back=self._can_back(node),
        )
        use = Use(node.backing_id is not None, node.opens)
        return choose(self.reach.takes(Place.RAM), use, wish)

    def _can_back(self, node: Node) -> bool:
        """Another node's file comes in pieces, so the kernel cannot read it by itself."""
        is_here = node.blob is not None or node.remote is None
        return is_here and self.reach.takes(self._place(node))

    def takes_new(self) -> bool:
        """Whether the first open of a file that is just made goes past us."""
        wish = Wish(True, True, not self._room.has(ROOM_BYTES), True)
        choice = choose(self.reach.takes(Place.RAM), Use(False, 0), wish)
        return choice.path is DataPath.PASSTHROUGH

    def begin(self, node: Node, fd: int, writing: bool) -> None:
        """Let the kernel read and write the file itself, if it can; the daemon does otherwise.

        Who opened the file since the path was chosen found it not registered, and is served by the
        daemon: then so is this open, since the kernel would answer the other mode with EIO.
        """
        assert self.backings is not None
        if node.backing_id is None and node.opens == 1:
            try:
                node.backing_id = self.backings.add(node.ino, fd)
            except OSError as error:
                self._refused(node, error)
        if writing and node.backing_id is not None:
            self._safety.written(node)  # from here on it may change at any time, unseen

    def _refused(self, node: Node, error: OSError) -> None:
        log.info("inode %d goes through the daemon: %s", node.ino, error)
        before, self.reach = self.reach, self.reach.without(self._place(node), error)
        if self.reach != before:
            log.warning("data path from now on: %s (%s)", self.reach.data_path, self.reach.reason)

    def _place(self, node: Node) -> Place:
        if node.blob is None:
            return Place.SOURCE
        return Place.OVERFLOW if self._tier.is_overflowed(node.blob) else Place.RAM

    def end(self, node: Node) -> None:
        """The last close: the kernel does not need the backing file any more."""
        if self.backings is not None and node.backing_id is not None:
            self.backings.drop(node.ino)
            node.backing_id = None

    def note_changes(self, node: Node) -> None:
        """What the kernel wrote past us since the file last settled is a new version."""
        if node.backing_id is not None and node.blob is not None:
            status = self._tier.status(node.blob)
            if node.settled_as != Signature(status.st_size, status.st_mtime_ns):
                self._safety.written(node)

    def before_settling(self, node: Node) -> None:
        """To be called before an fsync or a rename settles a file.

        What settled before while it was open may have changed through a mapping, without a sign.
        """
        if node.writers:
            self.note_changes(node)
            if node.unsure:
                self._safety.written(node)
