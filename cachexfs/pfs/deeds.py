"""What the ledger asks of the shared file system besides publishing files: names and attributes.

Each deed may be done twice (the daemon may die between the deed and its note), so each finds its
own work done, and then succeeds. What another node did meanwhile is respected: an object is moved
or changed only if it is the one that is meant.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Awaitable, Callable

from cachexfs.durability.actions import (
    EXCHANGE,
    Action,
    Attributes,
    Link,
    Mkdir,
    Rename,
    Rmdir,
    Slot,
    Symlink,
    Unlink,
)
from cachexfs.durability.ledger import Entry
from cachexfs.pfs import copying
from cachexfs.pfs.health import is_trouble
from cachexfs.pfs.source import Seen, Source
from cachexfs.ram.attributes import Changes, like
from cachexfs.ram.node import HIDDEN, Node, Origin, Signature
from cachexfs.ram.tier import Tier
from cachexfs.ram.tree import Tree


class Deeds:
    """Carries one action out. Raises OSError when it has to be tried again."""

    def __init__(self, tree: Tree, tier: Tier, source: Source, tag: str) -> None:
        self._tree = tree
        self._tier = tier
        self._source = source
        self._tag = tag.encode()
        self._table: dict[type[Action], Callable[[Entry], Awaitable[None]]] = {
            Rename: self._rename,
            Link: self._link,
            Unlink: self._unlink,
            Rmdir: self._rmdir,
            Mkdir: self._mkdir,
            Symlink: self._symlink,
            Attributes: self._attributes,
        }

    async def perform(self, entry: Entry) -> None:
        """Carry an entry's action out."""
        await self._table[type(entry.action)](entry)

    def link_over(self, first: Slot, slot: Slot, temp: bytes) -> None:
        """Make `slot` a name of what `first` names, over whatever is there; in a thread."""
        hidden = Slot(slot.parent, temp)
        self._source.make_link(first, hidden)
        self._source.move(hidden, slot)
        with self._source.directory(slot.parent) as fd:
            copying.sync_directory(fd)

    def _origin_at(self, slot: Slot) -> Origin | None:
        try:
            with self._source.directory(slot.parent) as fd:
                status = os.stat(slot.name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return Origin(status.st_dev, status.st_ino)

    async def _rename(self, entry: Entry) -> None:
        action = entry.action
        assert isinstance(action, Rename)
        node = self._tree.nodes.get(action.ino)
        origin = node.origin if node else None

        def call() -> tuple[Origin | None, Seen]:
            other = self._origin_at(action.new)
            if action.exchange:
                self._exchange(action, origin, other)
            elif origin is not None and self._origin_at(action.old) == origin:
                self._source.move(action.old, action.new)
            elif origin is None or other != origin:
                # Never published under the old name: what stands there was overwritten here.
                self._remove(action.old)
            self._sync(action.old.parent, action.new.parent)
            return other, self._source.look(action.old, action.new)

        other, seen = await self._source.work(call)
        self._saw(seen)
        self._moved(action, node, self._tree.known_as(other) if other else None)

    def _exchange(self, action: Rename, origin: Origin | None, other: Origin | None) -> None:
        """Swap two names, of which one may not be published yet; its publishing comes later."""
        mine = self._origin_at(action.old)
        if origin is not None and other == origin:
            return  # done before the daemon died
        if mine is not None and other is not None:
            self._source.move(action.old, action.new, EXCHANGE)
        elif mine is not None:
            self._source.move(action.old, action.new)
        elif other is not None:
            self._source.move(action.new, action.old)

    def _moved(self, action: Rename, node: Node | None, other: Node | None) -> None:
        """Follow what a rename on the shared file system did to the places there."""
        old, new = action.old, action.new
        if other is not None and other is not node and other.place == new:
            other.place = old if action.exchange else None
            self._tree.save(other)
        if node is not None and node.place == old:
            node.place = new
            self._tree.save(node)

    def _saw(self, seen: Seen) -> None:
        for slot, status in seen.items():
            self._tree.saw_name(slot, status)

    async def _link(self, entry: Entry) -> None:
        action = entry.action
        assert isinstance(action, Link)
        node = self._tree.nodes.get(action.ino)
        origin = node.origin if node else None

        def call() -> Seen:
            if origin is None or self._origin_at(action.old) != origin:
                return {}  # not published under the first name: its next publishing makes both
            try:
                self._source.make_link(action.old, action.new)
            except FileExistsError:
                self.link_over(action.old, action.new, self.temp_name(entry))
            except FileNotFoundError:
                return {}
            self._sync(action.new.parent)
            return self._source.look(action.new)

        self._saw(await self._source.work(call))

    async def _unlink(self, entry: Entry) -> None:
        action = entry.action
        assert isinstance(action, Unlink)
        node = self._tree.nodes.get(action.ino)
        names = sorted(node.names) if node else []
        origin = node.origin if node else None

        def call() -> Slot | None:
            self._remove(action.slot)
            return next((slot for slot in names if self._origin_at(slot) == origin), None)

        left = await self._source.work(call)
        self._tree.saw_name(action.slot, None)
        if node is not None and node.place == action.slot:
            node.place = left
            self._tree.save(node)

    async def _rmdir(self, entry: Entry) -> None:
        action = entry.action
        assert isinstance(action, Rmdir)

        def call() -> None:
            try:
                self._source.remove_directory(action.slot)
            except FileNotFoundError:
                pass
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise
                # Another node put something in: its files win, and the directory stays.

        await self._source.work(call)
        self._tree.saw_name(action.slot, None)
        self._source.directories.forget(action.ino)

    async def _mkdir(self, entry: Entry) -> None:
        action = entry.action
        assert isinstance(action, Mkdir)
        node = self._tree.nodes.get(action.ino)
        if node is None:
            return
        mode, uid, gid = node.mode, node.uid, node.gid

        def call() -> os.stat_result:
            try:
                return self._source.make_directory(action.slot, mode, uid, gid)
            except FileExistsError:
                with self._source.directory(action.slot.parent) as fd:
                    found = os.stat(action.slot.name, dir_fd=fd, follow_symlinks=False)
                if not stat.S_ISDIR(found.st_mode):
                    raise
                return found

        made = await self._source.work(call)
        self._tree.identify(node, Origin(made.st_dev, made.st_ino))
        node.place = action.slot
        self._tree.saw_name(action.slot, made)
        self._tree.save(node)

    async def _symlink(self, entry: Entry) -> None:
        action = entry.action
        assert isinstance(action, Symlink)
        node = self._tree.nodes.get(action.ino)
        if node is None or not node.names:
            return
        target, temp = node.target, self.temp_name(entry)
        owner, times = (node.uid, node.gid), (node.atime_ns, node.mtime_ns)

        def call() -> copying.Committed:
            with self._source.directory(action.slot.parent) as fd:
                with contextlib.suppress(FileExistsError):
                    os.symlink(target, temp, dir_fd=fd)
                if os.geteuid() == 0:
                    os.chown(temp, *owner, dir_fd=fd, follow_symlinks=False)
                os.utime(temp, ns=times, dir_fd=fd, follow_symlinks=False)
                os.rename(temp, action.slot.name, src_dir_fd=fd, dst_dir_fd=fd)
                copying.sync_directory(fd)
                return copying.committed_as(
                    os.stat(action.slot.name, dir_fd=fd, follow_symlinks=False)
                )

        made = await self._source.work(call)
        self._tree.identify(node, made.origin)
        node.place = action.slot
        self._tree.saw_name(action.slot, made.status)
        self._tree.save(node)

    async def _attributes(self, entry: Entry) -> None:
        node = self._tree.nodes.get(entry.action.ino)
        if node is None or node.origin is None or node.place is None:
            return
        place = (node.ino, node.place, node.origin)
        changes, xattrs = self._wanted_attributes(node), dict(node.xattrs)

        def call() -> Signature | None:
            try:
                with self._source.object(*place) as path:
                    copying.dress(path, changes, xattrs)
                    return copying.committed_as(os.stat(path)).signature
            except OSError as error:
                if is_trouble(error) and error.errno != errno.ESTALE:
                    raise
                return None  # gone, or replaced: there is nothing to bring up to date

        signature = await self._source.work(call)
        if signature and node.life and node.life.committed == node.life.version:
            node.signature = signature
        if self._wanted_attributes(node) == changes:  # not changed again meanwhile
            node.ahead = False
        self._tree.save(node)

    def _wanted_attributes(self, node: Node) -> Changes:
        if node.blob is not None:
            return like(self._tier.path(node.blob).stat())
        return Changes(node.mode, node.uid, node.gid, node.atime_ns, node.mtime_ns)

    def temp_name(self, entry: Entry) -> bytes:
        """The hidden name for what an entry makes."""
        # Two mounts may publish into one directory at the same time, so the tag tells them apart.
        return HIDDEN + self._tag + f"-{entry.action.ino:x}-{entry.seq}.tmp".encode()

    def _remove(self, slot: Slot) -> None:
        try:
            with self._source.directory(slot.parent) as fd:
                os.unlink(slot.name, dir_fd=fd)
                copying.sync_directory(fd)
        except FileNotFoundError:
            pass

    def _sync(self, *parents: int) -> None:
        for parent in set(parents):
            with self._source.directory(parent) as fd:
                copying.sync_directory(fd)
