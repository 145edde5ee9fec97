"""Making, moving and removing names: what each change is, and what must be true before it.

`Order` decides which way it goes. The kernel holds the directories' locks for the time of a
request, so no two requests change the same name at once; the publisher changes bindings only
between two awaits of ours.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from functools import partial
from typing import NamedTuple

from cachexfs.durability.actions import (
    EXCHANGE,
    NOREPLACE,
    Link,
    Mkdir,
    Rename,
    Rmdir,
    Slot,
    Symlink,
    Unlink,
)
from cachexfs.mount.attributes import take_status
from cachexfs.mount.errnos import answer
from cachexfs.mount.files import OpenFiles
from cachexfs.mount.order import Order
from cachexfs.mount.ports import Safety, Source
from cachexfs.mount.view import View
from cachexfs.ram.attributes import Changes, apply
from cachexfs.ram.node import Node, Origin, kind_of
from cachexfs.ram.tier import Tier
from cachexfs.ram.tree import Tree


class Caller(NamedTuple):
    """Who asks: owner for new objects, and the job whose order the change is part of."""

    uid: int
    gid: int
    job: str


class Names:
    """Changes of names. Raises OSError."""

    def __init__(
        self,
        tree: Tree,
        tier: Tier,
        source: Source,
        safety: Safety,
        view: View,
        files: OpenFiles,
        patience_s: float,
    ) -> None:
        self._tree = tree
        self._tier = tier
        self._source = source
        self._safety = safety
        self._view = view
        self._files = files
        self._order = Order(tree, source, safety, view, files, patience_s)

    # --- making ---------------------------------------------------------------------------------

    def create(self, slot: Slot, mode: int, caller: Caller) -> tuple[Node, int]:
        """A new, empty file of ours; returns it with the descriptor of its blob."""
        if self._tree.nodes[slot.parent].place is None and self._is_removed(slot.parent):
            raise answer(errno.ENOENT)
        self._make_ours(slot.parent, caller.job)
        node = self._tree.new("file")
        node.blob, fd = self._tier.create(partial(self._tree.path, slot))
        node.job = caller.job
        apply(fd, self._owned(slot, Changes(mode, caller.uid, caller.gid)))
        self._safety.begin(node)
        with self._tree.transaction():
            self._tree.bind(slot, node)
        return node, fd

    async def mknod(self, slot: Slot, mode: int, rdev: int, caller: Caller) -> Node:
        """A regular file; or a FIFO, socket or device node, if the source is well."""
        if stat.S_ISREG(mode):
            node, fd = self.create(slot, mode, caller)
            os.close(fd)
            self._safety.settled(node)
            return node
        made = await self._source.mknod(slot, mode, rdev, caller.uid, caller.gid)
        self._tree.saw_name(slot, made)
        return self._tree.made(Origin(made.st_dev, made.st_ino), kind_of(made.st_mode), slot)

    async def mkdir(
        self, slot: Slot, mode: int, caller: Caller
    ) -> tuple[Node, os.stat_result | None]:
        """A directory: on the shared file system at once where that is possible."""
        if self._order.is_ours_alone(slot):
            return self._local_directory(slot, mode, caller), None
        try:
            made = await self._source.mkdir(slot, mode, caller.uid, caller.gid)
        except OSError as error:
            if not self._source.is_trouble(error):
                raise
            return self._local_directory(slot, mode, caller), None
        self._tree.saw_name(slot, made)
        node = self._tree.made(Origin(made.st_dev, made.st_ino), "directory", slot)
        take_status(node, made)
        self._tree.saw(node.ino, {})
        self._safety.tell_peers(Mkdir(node.ino, slot))
        return node, made

    async def symlink(self, slot: Slot, target: bytes, caller: Caller) -> Node:
        """A symbolic link. It may be a pointer, so it always keeps its place in the order."""
        self._make_ours(slot.parent, caller.job)
        node = self._tree.new("symlink")
        node.target, node.job = target, caller.job
        self._fill(node, stat.S_IFLNK | 0o777, slot, caller)
        node.names.add(slot)
        await self._order.perform(caller.job, Symlink(node.ino, slot), bound=((slot, node),))
        return node

    async def link(self, node: Node, slot: Slot, caller: Caller) -> None:
        """A second name for a file."""
        job = self._job(node, caller)
        old = node.slot
        if old is None:
            raise answer(errno.ENOENT)
        self._make_ours(slot.parent, job)
        await self._files.take_over(node)
        action = Link(node.ino, old, slot)
        if self._order.allows_at_once(job, action) and await self._order.tried(
            self._source.link(old, slot)
        ):
            node.names.add(slot)
            self._order.save_if_ours(node)
            self._safety.tell_peers(action)
            return
        self._order.start_held(node)
        await self._order.perform(job, action, bound=((slot, node),))

    # --- removing -------------------------------------------------------------------------------

    async def unlink(self, slot: Slot, caller: Caller) -> None:
        """Remove a name of a file; its way to safety is cancelled with the last one."""
        node = (await self._view.child(*slot)).node
        action, job = Unlink(node.ino, slot), self._job(node, caller)
        if self._order.allows_at_once(job, action) and await self._order.tried(
            self._source.unlink(slot)
        ):
            self._order.lose_name(node, slot)
            self._safety.tell_peers(action)
            return
        await self._order.perform(job, action, unbound=((slot, node),))

    async def rmdir(self, slot: Slot, caller: Caller) -> None:
        """Remove a directory that is empty as programs see it."""
        node = (await self._view.child(*slot)).node
        if node.kind != "directory":
            raise answer(errno.ENOTDIR)
        if await self._view.entries(node.ino):
            raise answer(errno.ENOTEMPTY)
        action = Rmdir(node.ino, slot)
        if self._order.allows_at_once(caller.job, action) and await self._order.tried(
            self._source.rmdir(slot)
        ):
            node.names.discard(slot)
            node.place = None
            self._safety.tell_peers(action)
            return
        await self._order.perform(caller.job, action, unbound=((slot, node),))

    def give_up(self, slot: Slot, node: Node) -> None:
        """A name is about to stand for another node, as after a rename over it.

        No one is told: with what comes in its place the shared file system and the peers follow.
        """
        self._order.lose_name(node, slot)

    # --- moving ---------------------------------------------------------------------------------

    async def rename(
        self, old: Slot, new: Slot, flags: int, caller: Caller, exchange: int = 0
    ) -> None:
        """Move a name, over whatever is there; or swap two.

        `exchange` names the request of a swap: done twice, it would be undone.
        """
        moved = (await self._view.child(*old)).node
        replaced = await self._view.find(*new)
        if flags & NOREPLACE and replaced is not None:
            raise answer(errno.EEXIST)
        if flags & EXCHANGE and replaced is None:
            raise answer(errno.ENOENT)
        if moved is replaced or (exchange and exchange in moved.counted + _counted(replaced)):
            return
        await self._check_replaceable(moved, replaced, flags)
        if any(n and n.kind == "directory" and n.remote for n in (moved, replaced)):
            raise answer(errno.EXDEV)  # its maker goes on below the old name
        self._make_ours(new.parent, caller.job)
        await self.take_over(moved, caller.job)
        if replaced is not None and flags & EXCHANGE:
            await self.take_over(replaced, caller.job)
        action = Rename(moved.ino, old, new, exchange=bool(flags & EXCHANGE))
        job = self._job(moved, caller)
        self._files.passthrough.before_settling(moved)
        self._safety.settled(moved)  # its way starts now, also if a close has held it back
        if action.exchange and replaced is not None:
            self._order.start_held(replaced)
        moved.counted = [*moved.counted, exchange] if exchange else moved.counted
        at_once = not exchange and self._order.allows_at_once(job, action, replaced)
        if at_once and await self._order.tried(self._source.rename(old, new, flags)):
            self._renamed_at_once(moved, replaced, action)
            return
        await self._rename_in_order(job, moved, replaced, action)

    async def _check_replaceable(self, moved: Node, replaced: Node | None, flags: int) -> None:
        if replaced is None or flags & EXCHANGE:
            return
        if replaced.kind == "directory" and moved.kind != "directory":
            raise answer(errno.EISDIR)
        if moved.kind == "directory" and replaced.kind != "directory":
            raise answer(errno.ENOTDIR)
        if replaced.kind == "directory" and await self._view.entries(replaced.ino):
            raise answer(errno.ENOTEMPTY)

    def _renamed_at_once(self, moved: Node, replaced: Node | None, action: Rename) -> None:
        old, new = action.old, action.new
        moved.names.discard(old)
        moved.names.add(new)
        moved.place = new
        if replaced is not None and action.exchange:
            replaced.names.discard(new)
            replaced.names.add(old)
            replaced.place = old
            self._order.save_if_ours(replaced)
        elif replaced is not None:
            self._order.lose_name(replaced, new)
        self._order.save_if_ours(moved)
        self._safety.tell_peers(action)

    async def _rename_in_order(
        self, job: str, moved: Node, replaced: Node | None, action: Rename
    ) -> None:
        old, new = action.old, action.new
        if replaced is None:
            await self._order.perform(job, action, bound=((new, moved),), unbound=((old, moved),))
        elif action.exchange:
            replaced.names.discard(new)
            moved.names.discard(old)
            await self._order.perform(job, action, bound=((new, moved), (old, replaced)))
        else:
            self._order.lose_name(replaced, new)
            await self._order.perform(job, action, bound=((new, moved),), unbound=((old, moved),))

    def superseded(self, slot: Slot) -> None:
        """Another node's change of a name counts: ours is not wanted any more."""
        binding = self._tree.binding(slot)
        node = self._tree.nodes.get(binding.ino) if binding else None
        if node is None:
            return
        with self._tree.transaction():
            if node.kind == "directory":  # it may have been made already, or be made any moment
                entry = self._safety.perform(node.job, Rmdir(node.ino, slot))
                self._tree.unbind(slot, node, entry.seq)
                return
            self._tree.release(slot)
            self._order.lose_name(node, slot)

    # --- done before, by a daemon that died ahead of its reply ----------------------------------

    # What goes through the ledger is whole in the journal. A change that was made on the shared
    # file system at once may be true there and not here yet.

    def was_unlinked(self, slot: Slot) -> None:
        """A name is gone on the shared file system; so it is here."""
        for node in self._still_named(slot):
            self._order.lose_name(node, slot)
            self._safety.tell_peers(Unlink(node.ino, slot))

    async def was_renamed(self, old: Slot, new: Slot) -> None:
        """A name has moved on the shared file system; so it has here."""
        before = [node.ino for node in self._still_named(old)]
        moved = await self._view.find(*new)
        for node in self._still_named(new):
            if node is not moved:
                self._order.lose_name(node, new)
        if moved is not None and moved.ino in before and self._tree.binding(new) is None:
            self._renamed_at_once(moved, None, Rename(moved.ino, old, new))

    def _still_named(self, slot: Slot) -> list[Node]:
        """The nodes that know of this name, when the shared file system speaks for it."""
        if self._tree.binding(slot) is not None:
            return []
        return [node for node in list(self._tree.nodes.values()) if slot in node.names]

    # --- what other nodes have ------------------------------------------------------------------

    async def take_over(self, node: Node, job: str) -> None:
        """What another node has is to be changed here: from now on it is ours too."""
        if node.kind == "directory":
            self._make_ours(node.ino, job)
        else:
            await self._files.take_over(node)

    def _make_ours(self, ino: int, job: str) -> None:
        """A directory that another node is still to make is to be made from here too, before what
        is put into it: whoever comes first, both come to the same one."""
        node = self._tree.nodes[ino]
        slot = node.slot
        if node.remote is None or slot is None or self._tree.binding(slot) is not None:
            return
        self._make_ours(slot.parent, job)
        with self._tree.transaction():
            self._tree.detach(node)
            entry = self._safety.perform(job, Mkdir(node.ino, slot))
            self._tree.bind(slot, node, entry.seq)

    # --- small steps ----------------------------------------------------------------------------

    def _local_directory(self, slot: Slot, mode: int, caller: Caller) -> Node:
        self._make_ours(slot.parent, caller.job)
        node = self._tree.new("directory")
        self._fill(node, stat.S_IFDIR | mode & 0o7777, slot, caller)
        node.names.add(slot)
        self._tree.saw(node.ino, {})
        with self._tree.transaction():
            entry = self._safety.perform(caller.job, Mkdir(node.ino, slot))
            self._tree.bind(slot, node, entry.seq)
        return node

    def _fill(self, node: Node, mode: int, slot: Slot, caller: Caller) -> None:
        changes = self._owned(slot, Changes(mode, caller.uid, caller.gid))
        now = time.time_ns()
        node.mode, node.uid, node.gid = mode, caller.uid, changes.gid or caller.gid
        node.atime_ns = node.mtime_ns = node.ctime_ns = now

    def _owned(self, slot: Slot, changes: Changes) -> Changes:
        """Whose a new object is: a set-group-ID directory passes its group on."""
        if os.geteuid() != 0:
            return changes._replace(uid=None, gid=None)
        parent = self._tree.nodes[slot.parent]
        return changes._replace(gid=parent.gid) if parent.mode & stat.S_ISGID else changes

    def _job(self, node: Node, caller: Caller) -> str:
        """A file's changes stay in the order of the job that wrote it."""
        return node.job or caller.job

    def _is_removed(self, ino: int) -> bool:
        return ino != 1 and not self._tree.nodes[ino].names


def _counted(node: Node | None) -> list[int]:
    return node.counted if node else []
