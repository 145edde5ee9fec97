"""Room in the RAM tier: never ENOSPC while any tier has room.

In order: give up the RAM copies of durable files, oldest first; move the file that needs room to
the overflow directory; hold the writer back until something else became durable.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable

import trio

from cachexfs.durability.states import State
from cachexfs.ram.node import Node, keep_status
from cachexfs.ram.tier import Tier
from cachexfs.ram.tree import Tree
from cachexfs.status.report import Problem
from cachexfs.units import format_size

log = logging.getLogger(__name__)

HIGH_WATER = 0.75
"""Above this share of the budget, RAM copies of durable files go; the rest is for the next save."""

_HOLD_S = 0.05


def evictable(nodes: Iterable[Node]) -> list[Node]:
    """The files whose RAM copy may go, in the order in which they go: the latest save last."""
    free = [
        node
        for node in nodes
        if node.blob is not None
        and node.state is State.DURABLE
        and node.opens == 0
        and not node.pinned
    ]
    return sorted(free, key=lambda node: (node.settled_at_ns, node.ino))


class Room:
    """Makes room. `evicted` is told of every RAM copy that went.

    `is_busy` tells whether changes of a file are still to be made on the shared file system: its
    RAM copy is then the only one that has its present attributes, and stays.
    """

    def __init__(
        self,
        tree: Tree,
        tier: Tier,
        evicted: Callable[[Node], None],
        is_busy: Callable[[Node], bool] = lambda node: False,
    ) -> None:
        self._tree = tree
        self._tier = tier
        self._evicted = evicted
        self.is_busy = is_busy
        self.give_up_copies: Callable[[], None] = lambda: None
        """Gives up what was fetched from other nodes."""
        self._overflows = trio.CapacityLimiter(1)
        self.is_short = False

    def has(self, length: int) -> bool:
        """Whether `length` more bytes fit into the budget."""
        used, limit = self._tier.usage()
        return used + length <= limit

    def evict(self, node: Node) -> None:
        """Give up the RAM copy of a durable file."""
        assert node.blob is not None and node.state is State.DURABLE
        with contextlib.suppress(FileNotFoundError):
            keep_status(node, self._tier.status(node.blob))
        self._tier.delete(node.blob)
        node.blob = None
        self._evicted(node)

    def relax(self) -> None:
        """Evict down to the high-water mark, and all that is durable outside the RAM."""
        if self._tier.has_overflowed:
            for node in self._evictable():
                if node.blob is not None and self._tier.is_overflowed(node.blob):
                    self.evict(node)
        used, limit = self._tier.usage()
        if used <= limit * HIGH_WATER:
            return
        self._give_up_ready()
        for node in self._evictable():
            self.evict(node)
            if self._tier.usage().used_bytes <= limit * HIGH_WATER:
                return

    def problems(self) -> list[Problem]:
        """What a person should know."""
        if not self.is_short:
            return []
        used, limit = self._tier.usage()
        seen = f"{format_size(used)} of {format_size(limit)} in use, and nothing durable to give up"
        return [Problem("RamFull", seen, "raise ram.limit, name a spill directory, or save less")]

    async def make(self, node: Node, length: int) -> bool:
        """Make room for `length` more bytes of `node`; True when its blob has moved.

        Then the caller must open it again. Returns when there is room, however long that takes.
        """
        while not self._evict_for(length):
            self.is_short = True
            blob = node.blob
            can_move = blob is not None and not self._tier.is_overflowed(blob)
            if blob is not None and can_move and await self._overflow(blob):
                self.is_short = False
                return True
            await trio.sleep(_HOLD_S)
        self.is_short = False
        return False

    def _evictable(self) -> list[Node]:
        return [n for n in evictable(self._tree.captured()) if not self.is_busy(n)]

    def _give_up_ready(self) -> None:
        self.give_up_copies()
        if self._tier.prewarm is not None:
            self._tier.prewarm.give_up()

    def _evict_for(self, length: int) -> bool:
        if self.has(length):
            return True
        self._give_up_ready()
        if self.has(length):
            return True
        for node in self._evictable():
            self.evict(node)
            if self.has(length):
                return True
        return False

    async def _overflow(self, blob: int) -> bool:
        if self._tier.overflow_dir is None:
            return False
        try:
            await trio.to_thread.run_sync(self._tier.overflow, blob, limiter=self._overflows)
        except OSError as error:
            log.warning("no room in RAM, and the overflow directory answers: %s", error)
            return False
        return True
