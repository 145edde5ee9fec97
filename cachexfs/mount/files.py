"""Open files: what programs do with them, and who has them open.

All opens of an inode share one descriptor (`Descriptors`): of its blob, or of the source's file as
long as nobody writes. The first write brings the content into the RAM tier (`Capture`); what the
kernel reads and writes itself never comes here (`Passthrough`).

`FileInfo.direct_io` for write-only opens halves the copying that a write costs; such a descriptor
cannot be mapped shared, so every open that could be goes through the page cache.
"""

from __future__ import annotations

import errno
import os
from functools import partial

import pyfuse3

from cachexfs.durability.states import State
from cachexfs.mount.capture import Capture
from cachexfs.mount.datapath import DataPath
from cachexfs.mount.descriptors import Descriptors, Opened, handle_of, inode_of
from cachexfs.mount.errnos import answer
from cachexfs.mount.passthrough import Passthrough
from cachexfs.mount.ports import Fetching, Safety, Source
from cachexfs.mount.setids import SetIds
from cachexfs.ram.node import Node, Signature
from cachexfs.ram.room import Room
from cachexfs.ram.tier import Tier
from cachexfs.ram.tree import Tree

COUNTED = 32
"""Opens and closes of an inode that are remembered by the number of their request: more than can
be under way at once without having been replied to."""


class OpenFiles:
    """The files that programs have open. Raises OSError."""

    def __init__(
        self,
        tree: Tree,
        tier: Tier,
        source: Source,
        safety: Safety,
        room: Room,
        fetching: Fetching | None = None,
    ) -> None:
        self._tree = tree
        self._tier = tier
        self._source = source
        self._safety = safety
        self.passthrough = Passthrough(tier, safety, room)
        self.set_ids = SetIds(tree, tier, self.passthrough)
        self._fetching = fetching
        self._descriptors = Descriptors(tier, source, fetching)
        self._capture = Capture(
            tree, tier, source, safety, room, self._descriptors, self.set_ids, fetching
        )

    def fd(self, ino: int) -> int | None:
        """The descriptor of an open file; None when it is not open."""
        return self._descriptors.fd(ino)

    # --- open and close -------------------------------------------------------------------------

    async def open(self, node: Node, flags: int, unique: int = 0) -> pyfuse3.FileInfo:
        """Open a node with the flags of open(2); `unique` names the request, if it has a name."""
        writing = flags & os.O_ACCMODE != os.O_RDONLY
        choice = self.passthrough.choose(node, writing)
        if choice.afresh:
            await self._capture.start_new_inode(node, flags)
            raise answer(errno.ESTALE)  # the kernel looks the name up again, and opens that
        if self._is_first(node, unique):
            node.opens += 1  # before anything awaits: an open file is not evicted
            node.writers += writing
        try:
            if flags & os.O_TRUNC:  # first: then the old content need not be reached
                await self.truncate(node, 0)
            opened = await self._descriptors.ensure(node)
            if choice.copy_first:
                await self._capture.copy_up(node)
            if choice.path is DataPath.PASSTHROUGH and not opened.is_fetched:
                self.passthrough.begin(node, opened.fd, writing)
            self._journal_opens(node)
        except BaseException:
            self._leave(node, writing)
            raise
        return _info(node, flags)

    def created(self, node: Node, fd: int, flags: int, unique: int = 0) -> pyfuse3.FileInfo:
        """Take the descriptor of a blob that was just made for a new file."""
        self._is_first(node, unique)
        node.opens, node.writers = 1, int(flags & os.O_ACCMODE != os.O_RDONLY)
        self._descriptors.take(node, fd)
        if self.passthrough.takes_new():
            self.passthrough.begin(node, fd, writing=bool(node.writers))
        self._journal_opens(node)
        return _info(node, flags)

    def flush(self, handle: int) -> None:
        """A descriptor was closed: what it wrote is captured now."""
        ino, writing = inode_of(handle)
        node = self._tree.nodes.get(ino)
        if writing and node is not None and node.names:
            self.set_ids.distrust(node)
            self.passthrough.note_changes(node)
            self._safety.settled(node, start=False)

    def release(self, handle: int, unique: int = 0) -> None:
        """The last descriptor of an open was closed."""
        ino, writing = inode_of(handle)
        node = self._tree.nodes.get(ino)
        if node is None or not self._is_first(node, unique):
            return
        with self._tree.transaction():
            if writing:
                self.set_ids.distrust(node)
                self.passthrough.note_changes(node)
            self._leave(node, writing)
            if node.writers == 0:  # also of a reader: open(2) may create and not write
                self._safety.closed(node)

    def bury_if_unused(self, node: Node) -> None:
        """After its last name went: give the bytes up now, unless somebody has them open."""
        if node.opens == 0 and node.state is State.GONE:
            self._bury(node)

    def _is_first(self, node: Node, unique: int) -> bool:
        """Whether an open or release was not counted yet; one that is resent may have been."""
        if unique and unique in node.counted:
            return False
        if unique:
            node.counted = [*node.counted[-COUNTED:], unique]
        return True

    def _leave(self, node: Node, writing: bool) -> None:
        node.opens = max(0, node.opens - 1)
        node.writers = max(0, node.writers - writing)
        if node.opens == 0:
            self._descriptors.close(node)
            self.passthrough.end(node)
        self._journal_opens(node)
        self.bury_if_unused(node)

    def _bury(self, node: Node) -> None:
        """The last name and the last descriptor are gone: so are the bytes."""
        if node.blob is not None:
            self._tree.after_commit(partial(self._tier.delete, node.blob))
            node.blob = None
        if node.lookups == 0:
            self._tree.drop(node)

    def _journal_opens(self, node: Node) -> None:
        """The next daemon has to know what the kernel holds, if there can be a next daemon."""
        if self._tree.keeps_reflections:
            self._tree.save(node)

    # --- data -----------------------------------------------------------------------------------

    async def read(self, handle: int, offset: int, length: int) -> bytes:
        """Up to `length` bytes at `offset`."""
        node = self._node(handle)
        opened = await self._descriptors.ensure(node)
        if opened.is_blob:
            return os.pread(opened.fd, length, offset)
        if opened.is_fetched:
            return await self._read_fetched(node, opened, offset, length)
        try:
            return await self._source.read(opened.fd, offset, length)
        except OSError as error:
            if self._fetching is None or not self._source.is_trouble(error):
                raise
            if not await self._fetching.find_replica(node):
                raise
            return await self._fetching.read(node, offset, length)

    async def _read_fetched(self, node: Node, opened: Opened, offset: int, length: int) -> bytes:
        assert self._fetching is not None
        try:
            return await self._fetching.read(node, offset, length)
        except OSError:
            if opened.is_fetched and not await self._has_arrived(node, opened):
                raise
        return await self._source.read(opened.fd, offset, length)

    async def _has_arrived(self, node: Node, opened: Opened) -> bool:
        """Whether what nobody else delivers is to be had on the shared file system by now.

        It is read from there then. Raises OSError when that does not answer either.
        """
        if node.remote is not None:
            slot, signature = node.slot, node.signature
            status = await self._source.lookup(slot) if slot is not None else None
            if status is None or signature != Signature(status.st_size, status.st_mtime_ns):
                return False
            node.place = slot
        opened.replaced.append(opened.fd)
        opened.fd, opened.is_fetched = await self._source.open(node), False
        self._tree.detach(node)
        assert self._fetching is not None
        self._fetching.forget(node.ino)
        return True

    async def write(self, handle: int, offset: int, data: bytes) -> int:
        """Write all of `data` at `offset`; waits for room rather than fail."""
        node = self._node(handle)
        opened = await self._descriptors.ensure(node)
        if not opened.is_blob:
            await self._capture.copy_up(node)
        self._safety.written(node)
        if not self._capture.fits(node, len(data)):
            await self._capture.make_room(node, len(data))
        return await self._write_whole(node, offset, data)

    async def _write_whole(self, node: Node, offset: int, data: bytes) -> int:
        done = 0
        while done < len(data):
            opened = await self._descriptors.ensure(node)
            try:
                part = memoryview(data)[done:] if done else data
                done += os.pwrite(opened.fd, part, offset + done)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                await self._capture.make_room(node, len(data) - done)
        return done

    async def to_read(self, handle: int) -> int:
        """The descriptor to read an open file from."""
        return (await self._descriptors.ensure(self._node(handle))).fd

    async def to_write(self, handle: int) -> int:
        """The descriptor to change an open file through; it counts as written."""
        node = self._node(handle)
        if node.blob is None:
            await self._capture.copy_up(node)
        self._safety.written(node)
        return (await self._descriptors.ensure(node)).fd

    async def truncate(self, node: Node, size: int) -> None:
        """Set the size; a file of the shared file system becomes ours by it."""
        if node.blob is None and node.backing_id is not None:  # read past us, from the source
            await self._capture.start_new_inode(node, os.O_TRUNC if size == 0 else 0)
            raise answer(errno.ESTALE)
        if node.blob is None:
            await self._capture.copy_up(node, whole=size > 0)
        elif size == 0 and node.backing_id is None and self._safety.retain(node):
            self._capture.start_afresh(node)
        assert node.blob is not None
        self._safety.written(node)
        os.truncate(self._tier.path(node.blob), size)
        self.set_ids.distrust(node)
        if node.writers == 0:  # truncate(2) on a path: no close will follow
            self._safety.settled(node)

    async def take_over(self, node: Node) -> None:
        """Another node's file is to be changed here: from now on it is ours."""
        if node.remote is None or node.kind != "file":
            return
        await self._capture.copy_up(node)
        self._safety.written(node)
        if node.writers == 0:
            self._safety.settled(node)
        if node.opens == 0:
            self._descriptors.close(node)

    def _node(self, handle: int) -> Node:
        ino, _ = inode_of(handle)
        try:
            return self._tree.nodes[ino]
        except KeyError:
            raise answer(errno.EBADF) from None


def _info(node: Node, flags: int) -> pyfuse3.FileInfo:
    access = flags & os.O_ACCMODE
    handle = handle_of(node, writing=access != os.O_RDONLY)
    return pyfuse3.FileInfo(fh=handle, direct_io=access == os.O_WRONLY)
