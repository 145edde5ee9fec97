"""Content that comes into the RAM tier, and content that has to leave it for want of room.

A file of the shared file system is copied at its first write. One that the kernel reads past us has
the source's file for its backing, which is never written: its names get a new inode instead.
"""

from __future__ import annotations

import os

import trio

from cachexfs.durability.actions import Slot
from cachexfs.mount import attributes
from cachexfs.mount.descriptors import Descriptors
from cachexfs.mount.ports import Fetching, Safety, Source
from cachexfs.mount.setids import SetIds
from cachexfs.ram.attributes import Changes, apply, like
from cachexfs.ram.node import Node, Origin
from cachexfs.ram.room import Room
from cachexfs.ram.tier import Tier
from cachexfs.ram.tree import Tree


class Capture:
    """Makes blobs of files that are to be written, and finds them a place. Raises OSError."""

    def __init__(
        self,
        tree: Tree,
        tier: Tier,
        source: Source,
        safety: Safety,
        room: Room,
        descriptors: Descriptors,
        set_ids: SetIds,
        fetching: Fetching | None,
    ) -> None:
        self._tree = tree
        self._tier = tier
        self._source = source
        self._safety = safety
        self._room = room
        self._descriptors = descriptors
        self._set_ids = set_ids
        self._fetching = fetching

    # --- from the shared file system ------------------------------------------------------------

    async def copy_up(self, node: Node, *, whole: bool = True) -> None:
        """Bring a file of the shared file system into the RAM tier, to be written there."""
        opened = await self._descriptors.ensure(node) if whole else self._descriptors.get(node)
        lock = opened.lock if opened else trio.Lock()
        async with lock:
            if node.blob is not None:
                return
            if node.remote is not None:
                changes, xattrs = attributes.own(node), node.xattrs
            elif node.place is None and opened is not None:  # removed, and still open
                changes, xattrs = like(os.fstat(opened.fd)), node.xattrs
            else:
                changes, xattrs = await self._described(node, whole)
            blob, fd = self._tier.create()
            try:
                if whole and node.remote is not None and self._fetching is not None:
                    await self._fetching.copy_to(node, fd)
                elif whole and opened is not None:
                    await self._source.copy_out(opened.fd, fd)
                apply(fd, changes)
            except BaseException:
                os.close(fd)
                self._tier.delete(blob)
                raise
            self._take_over(node, blob, xattrs)
            if opened is None:
                os.close(fd)
            else:
                opened.replace(fd)

    async def _described(self, node: Node, whole: bool) -> tuple[Changes, dict[bytes, bytes]]:
        """Attributes and xattrs on the shared file system, or what is remembered of them.

        The latter will do for a file whose content is replaced while that is ill.
        """
        try:
            status = await self._source.status(node)
            xattrs = await self._source.xattrs(node)
            if node.place is not None and status.st_nlink > len(node.names):
                await self._find_other_names(node)
        except OSError as error:
            if whole or not node.mode or not self._source.is_trouble(error):
                raise
            return attributes.own(node), node.xattrs
        return attributes.own(node) if node.ahead else like(status), xattrs

    async def _find_other_names(self, node: Node) -> None:
        """Hard links in the same directory are published together: both names, one new content."""
        assert node.place is not None
        parent = node.place.parent
        for name, status in (await self._source.listing(parent)).items():
            slot = Slot(parent, name)
            same = Origin(status.st_dev, status.st_ino) == node.origin
            if same and self._tree.binding(slot) is None:
                node.names.add(slot)

    def _take_over(self, node: Node, blob: int, xattrs: dict[bytes, bytes]) -> None:
        if node.remote is not None and self._fetching is not None:
            self._fetching.forget(node.ino)
            self._tree.detach(node)
        if node.life is None:
            self._safety.adopt(node)
        assert node.life is not None
        node.blob, node.xattrs, node.ahead = blob, xattrs, False
        node.life.in_ram = True
        self._set_ids.trust(node)
        if node.names:
            self._tree.save(node)
        else:
            self._safety.deleted(node)

    # --- a new inode, a new blob ----------------------------------------------------------------

    async def start_new_inode(self, node: Node, flags: int) -> None:
        """A file that is read past the daemon is to be written: its name gets an inode of ours.

        Who has the old one open goes on reading what was there, as after a rename over it.
        """
        opened = await self._descriptors.ensure(node)
        async with opened.lock:
            if not node.names:  # another writer was first
                return
            status, xattrs = await self._source.status(node), await self._source.xattrs(node)
            blob, fd = self._tier.create()
            try:
                if not flags & os.O_TRUNC:
                    await self._source.copy_out(opened.fd, fd)
                apply(fd, like(status))
            except BaseException:
                self._tier.delete(blob)
                raise
            finally:
                os.close(fd)
            self._move_names(node, blob, xattrs)

    def _move_names(self, node: Node, blob: int, xattrs: dict[bytes, bytes]) -> None:
        """All names of a file stand for a new inode with this blob from now on."""
        fresh = self._tree.new("file")
        fresh.blob, fresh.xattrs, fresh.job = blob, xattrs, node.job
        self._safety.adopt(fresh)
        names, node.names = set(node.names), set()
        with self._tree.transaction():
            self._safety.written(fresh)
            for slot in names:
                self._tree.bind(slot, fresh)
            self._tree.save(node)

    def start_afresh(self, node: Node) -> None:
        """A new, empty blob with the attributes of the old one, which is still to be published."""
        old = self._tier.path(node.retained[max(node.retained)]).stat()
        node.blob, fd = self._tier.create()
        apply(fd, like(old)._replace(atime_ns=None, mtime_ns=None))
        if (opened := self._descriptors.get(node)) is not None:
            opened.replace(fd)
        else:
            os.close(fd)
        self._tree.save(node)

    # --- room -----------------------------------------------------------------------------------

    def fits(self, node: Node, length: int) -> bool:
        """Whether more bytes of a file need no room to be made; outside the RAM they never do."""
        is_outside = node.blob is not None and self._tier.is_overflowed(node.blob)
        return is_outside or self._room.has(length)

    async def make_room(self, node: Node, length: int) -> None:
        """Make room for more bytes of a file that is open, which may move for it."""
        opened = await self._descriptors.ensure(node)
        async with opened.lock:
            if not self.fits(node, length) and await self._room.make(node, length):
                assert node.blob is not None
                opened.move(self._tier.open(node.blob))
