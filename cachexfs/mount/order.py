"""The two ways of a change of names: at once, or in its order.

Where nothing is pending that a change depends on, it is made on the shared file system at once, so
that its answer is the program's answer. Otherwise, and whenever the shared file system is in
trouble, the change is ours first, with its place in the ledger, and is made there in its turn.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable

import trio

from cachexfs.durability.actions import Action, Slot
from cachexfs.durability.ledger import Entry
from cachexfs.durability.states import State
from cachexfs.mount.files import OpenFiles
from cachexfs.mount.ports import Safety, Seen, Source
from cachexfs.mount.view import View
from cachexfs.ram.node import Node, Signature
from cachexfs.ram.tree import Tree


class Order:
    """Makes changes of names true, here and there. Raises OSError.

    `patience_s`: how long a change that waits for nothing is waited for.
    """

    def __init__(
        self,
        tree: Tree,
        source: Source,
        safety: Safety,
        view: View,
        files: OpenFiles,
        patience_s: float,
    ) -> None:
        self._tree = tree
        self._source = source
        self._safety = safety
        self._view = view
        self._files = files
        self._patience_s = patience_s

    def allows_at_once(self, job: str, action: Action, other: Node | None = None) -> bool:
        """Whether nothing is pending that this change has to come after."""
        slots = action.slots_touched()
        node = self._tree.nodes[action.ino]
        nodes = [n for n in (node, other) if n is not None]
        return (
            all(n.place is not None and n.place in n.names for n in nodes)
            and not any(self._tree.binding(slot) for slot in slots)
            and not any(self._tree.bindings_in(n.ino) for n in nodes if n.kind == "directory")
            and all(self._view.is_on_source(slot.parent) for slot in slots)
            and self._safety.is_idle(job, *slots, *(n.ino for n in nodes))
        )

    def is_ours_alone(self, slot: Slot) -> bool:
        """Whether the shared file system cannot be asked about a name before others are done."""
        return not self._view.is_on_source(slot.parent) or self._tree.binding(slot) is not None

    async def tried(self, attempt: Awaitable[Seen]) -> bool:
        """Make a change at once; False when the shared file system is in trouble."""
        try:
            seen = await attempt
        except OSError as error:
            if not self._source.is_trouble(error):
                raise
            return False
        for slot, status in seen.items():
            self._tree.saw_name(slot, status)
        return True

    async def perform(
        self,
        job: str,
        action: Action,
        bound: tuple[tuple[Slot, Node], ...] = (),
        unbound: tuple[tuple[Slot, Node], ...] = (),
    ) -> None:
        """Give a change its place in the order; it is true here when this returns.

        With nothing before it, it is worth waiting a moment for: then it is true there as well.
        """
        with self._tree.transaction():
            idle = self._safety.is_idle(job, *action.touches())
            entry = self._safety.perform(job, action)
            for slot, node in bound:
                # A file that is still open has no content to publish yet: its binding stays.
                self._tree.bind(slot, node, None if node.state is State.OPEN else entry.seq)
            for slot, node in unbound:  # after it has its new name: without any it would be gone
                self._tree.unbind(slot, node, entry.seq)
                self._after_losing(node)
        if idle:
            await self._wait_a_moment(entry)

    async def _wait_a_moment(self, entry: Entry) -> None:
        with trio.move_on_after(self._patience_s):
            await self._safety.finished(entry)

    def start_held(self, node: Node) -> None:
        """A name that waits for an entry needs a publishing before that entry.

        A file that was closed is captured, but its way waits for the release, which comes later.
        """
        if node.state is not State.OPEN:
            self._safety.settled(node)

    # --- names that were changed at once --------------------------------------------------------

    def lose_name(self, node: Node, slot: Slot) -> None:
        """A name does not stand for a node any more; with the last one the node is gone."""
        node.names.discard(slot)
        if node.place == slot:
            node.place = min(node.names, default=None)
        self._after_losing(node)
        self.save_if_ours(node)

    def save_if_ours(self, node: Node) -> None:
        """Journal a node, if the journal is to know it."""
        is_journaled = node.life is not None or self._tree.keeps_reflections
        if is_journaled and node.ino in self._tree.nodes:
            self._tree.save(node)

    def _after_losing(self, node: Node) -> None:
        if node.names or node.kind == "directory":
            return
        if node.life is None and (fd := self._files.fd(node.ino)) is not None:
            status = os.fstat(fd)  # the next daemon cannot ask any more
            node.signature = Signature(status.st_size, status.st_mtime_ns)
        # Its inode number there will be given out again, also while somebody has this one open.
        self._tree.identify(node, None)
        self._safety.deleted(node)
        self._files.bury_if_unused(node)
