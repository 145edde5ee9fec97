"""Whether a name that the kernel goes on with still stands for what it takes it for.

The kernel does not look a name up again for `attributes.TIMEOUT_S`, and another node may have
written, replaced or removed the file meanwhile. Who opens a file wants what was closed last,
wherever: so an open of what was not just looked up is checked. With ESTALE the kernel looks the
name up again, and opens what it finds then.
"""

from __future__ import annotations

import errno

import trio

from cachexfs.durability.actions import Slot
from cachexfs.mount.errnos import answer
from cachexfs.mount.view import View
from cachexfs.ram.node import Node
from cachexfs.ram.tree import Tree

BELIEVED_S = 0.1
"""How long a lookup is believed, as the homes' "nobody has it" is (`homes.NEGATIVE_S`): the kernel
opens what it has just looked up within a fraction of that."""
_REMEMBERED = 4096


class Standing:
    """Of the files that were looked up of late."""

    def __init__(self, tree: Tree, view: View) -> None:
        self._tree = tree
        self._view = view
        self._looked_up_s: dict[int, float] = {}

    def looked_up(self, node: Node) -> None:
        """The kernel is told now what a name stands for."""
        if len(self._looked_up_s) >= _REMEMBERED:
            self._looked_up_s.clear()
        self._looked_up_s[node.ino] = trio.current_time()

    def forget(self) -> None:
        """Believe no lookup that was before."""
        self._looked_up_s.clear()

    async def check(self, node: Node, pid: int) -> None:
        """Raise OSError(ESTALE) when a file that is to be opened is not what its name stands for.

        Once: who comes back with the same node has no name that could be looked up
        (`/proc/self/fd`), and gets what it has.
        """
        slot = self._to_check(node)
        if slot is None:
            return
        self.looked_up(node)
        if not await self._is_still(slot, node, pid):
            raise answer(errno.ESTALE)

    def _to_check(self, node: Node) -> Slot | None:
        """The name to ask about; None where nobody has to be asked."""
        since_s = trio.current_time() - self._looked_up_s.get(node.ino, float("-inf"))
        if not self._view.has_others or since_s < BELIEVED_S or len(node.names) != 1:
            return None
        slot = node.slot
        return slot if slot is not None and self._tree.binding(slot) is None else None

    async def _is_still(self, slot: Slot, node: Node, pid: int) -> bool:
        remote = await self._view.told(slot, on_source=node.place is not None)
        has_none = node.remote is None and node.blob is None and not node.opens
        if remote is None and has_none:  # it is opened at the source, by its identity
            return True
        try:
            found = await self._view.child(*slot, pid)
        except FileNotFoundError:
            return False
        except OSError:
            return True  # what is here can be opened whatever the source does
        return found.node is node
