"""Open files: descriptors by inode number, and the portable data path.

A file handle is made from the inode number, not kept in a table: `handle = inode * 2 + writing`.
All opens of an inode share one descriptor, of its blob, or of the source's file as long as nobody
writes: the first write copies it into the RAM tier.

`FileInfo.direct_io` for write-only opens halves the copying that a write costs; such a descriptor
cannot be mapped shared, so every open that could be goes through the page cache.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field

import pyfuse3
import trio

from cachexfs.durability.actions import Slot
from cachexfs.durability.states import State
from cachexfs.mount import attributes
from cachexfs.mount.ports import Safety, Source
from cachexfs.ram.attributes import Changes, apply, like
from cachexfs.ram.node import Node, Origin
from cachexfs.ram.room import Room
from cachexfs.ram.tier import Tier
from cachexfs.ram.tree import Tree


def answer(code: int) -> OSError:
    """What a program is told: an OSError with the text of its number."""
    return OSError(code, os.strerror(code))


def handle_of(node: Node, *, writing: bool) -> int:
    """The file handle for an open of a node."""
    return node.ino * 2 + writing


def inode_of(handle: int) -> tuple[int, bool]:
    """The inode number of a file handle, and whether it was opened for writing."""
    return handle // 2, bool(handle % 2)


@dataclass
class _Open:
    """The descriptor in use, and those it replaced, which a thread may still be reading from."""

    fd: int
    is_blob: bool
    replaced: list[int] = field(default_factory=list)
    lock: trio.Lock = field(default_factory=trio.Lock)


class OpenFiles:
    """The files that programs have open. Raises OSError."""

    def __init__(self, tree: Tree, tier: Tier, source: Source, safety: Safety, room: Room) -> None:
        self._tree = tree
        self._tier = tier
        self._source = source
        self._safety = safety
        self._room = room
        self._open: dict[int, _Open] = {}

    def fd(self, ino: int) -> int | None:
        """The descriptor of an open file; None when it is not open."""
        found = self._open.get(ino)
        return found.fd if found else None

    # --- open and close -------------------------------------------------------------------------

    async def open(self, node: Node, flags: int) -> pyfuse3.FileInfo:
        """Open a node with the flags of open(2)."""
        writing = flags & os.O_ACCMODE != os.O_RDONLY
        node.opens += 1  # before anything awaits: an open file is not evicted
        node.writers += writing
        try:
            if flags & os.O_TRUNC:  # first: then the old content need not be reached
                await self.truncate(node, 0)
            await self._ensure_open(node)
        except BaseException:
            self._leave(node, writing)
            raise
        return self._info(node, flags)

    def created(self, node: Node, fd: int, flags: int) -> pyfuse3.FileInfo:
        """Take the descriptor of a blob that was just made for a new file."""
        node.opens, node.writers = 1, int(flags & os.O_ACCMODE != os.O_RDONLY)
        self._open[node.ino] = _Open(fd, is_blob=True)
        return self._info(node, flags)

    def flush(self, handle: int) -> None:
        """A descriptor was closed: what it wrote is captured now."""
        ino, writing = inode_of(handle)
        node = self._tree.nodes.get(ino)
        if writing and node is not None and node.names:
            self._safety.settled(node, start=False)

    def release(self, handle: int) -> None:
        """The last descriptor of an open was closed."""
        ino, writing = inode_of(handle)
        node = self._tree.nodes.get(ino)
        if node is not None:
            self._leave(node, writing)
            if node.writers == 0:  # also of a reader: open(2) may create and not write
                self._safety.settled(node)

    def _leave(self, node: Node, writing: bool) -> None:
        node.opens = max(0, node.opens - 1)
        node.writers = max(0, node.writers - writing)
        if node.opens == 0 and (closed := self._open.pop(node.ino, None)):
            for fd in (closed.fd, *closed.replaced):
                os.close(fd)
        if node.opens == 0 and node.state is State.GONE:
            self._bury(node)

    def _bury(self, node: Node) -> None:
        """The last name and the last descriptor are gone: so are the bytes."""
        if node.blob is not None:
            self._tier.delete(node.blob)
            node.blob = None
        if node.lookups == 0:
            self._tree.drop(node)

    def bury_if_unused(self, node: Node) -> None:
        """After its last name went: give the bytes up now, unless somebody has them open."""
        if node.opens == 0 and node.state is State.GONE:
            self._bury(node)

    def _info(self, node: Node, flags: int) -> pyfuse3.FileInfo:
        access = flags & os.O_ACCMODE
        handle = handle_of(node, writing=access != os.O_RDONLY)
        return pyfuse3.FileInfo(fh=handle, direct_io=access == os.O_WRONLY)

    async def _ensure_open(self, node: Node) -> _Open:
        if (found := self._open.get(node.ino)) is not None:
            return found
        if node.blob is not None:
            opened = _Open(self._tier.open(node.blob), is_blob=True)
        else:
            opened = _Open(await self._source.open(node), is_blob=False)
        if (raced := self._open.get(node.ino)) is not None:
            os.close(opened.fd)
            return raced
        self._open[node.ino] = opened
        return opened

    # --- data -----------------------------------------------------------------------------------

    async def read(self, handle: int, offset: int, length: int) -> bytes:
        """Up to `length` bytes at `offset`."""
        node = self._node(handle)
        opened = await self._ensure_open(node)
        if opened.is_blob:
            return os.pread(opened.fd, length, offset)
        return await self._source.read(opened.fd, offset, length)

    async def write(self, handle: int, offset: int, data: bytes) -> int:
        """Write all of `data` at `offset`; waits for room rather than fail."""
        node = self._node(handle)
        opened = await self._ensure_open(node)
        if not opened.is_blob:
            await self._copy_up(node)
        self._safety.written(node)
        if not self._room.has(len(data)):
            await self._make_room(node, len(data))
        return await self._write_whole(node, offset, data)

    async def truncate(self, node: Node, size: int) -> None:
        """Set the size; a file of the shared file system becomes ours by it."""
        if node.blob is None:
            await self._copy_up(node, whole=size > 0)
        elif size == 0 and self._safety.retain(node):
            self._start_afresh(node)
        assert node.blob is not None
        self._safety.written(node)
        os.truncate(self._tier.path(node.blob), size)
        if node.writers == 0:  # truncate(2) on a path: no close will follow
            self._safety.settled(node)

    async def _write_whole(self, node: Node, offset: int, data: bytes) -> int:
        done = 0
        while done < len(data):
            try:
                part = memoryview(data)[done:] if done else data
                done += os.pwrite(self._open[node.ino].fd, part, offset + done)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                await self._make_room(node, len(data) - done)
        return done

    async def _make_room(self, node: Node, length: int) -> None:
        opened = self._open[node.ino]
        async with opened.lock:
            if await self._room.make(node, length):
                assert node.blob is not None
                self._replace(opened, self._tier.open(node.blob))

    async def _copy_up(self, node: Node, *, whole: bool = True) -> None:
        """Bring a file of the shared file system into the RAM tier, to be written there."""
        opened = await self._ensure_open(node) if whole else self._open.get(node.ino)
        lock = opened.lock if opened else trio.Lock()
        async with lock:
            if node.blob is not None:
                return
            if node.place is None and opened is not None:  # removed, and still open
                changes, xattrs = like(os.fstat(opened.fd)), node.xattrs
            else:
                changes, xattrs = await self._described(node, whole)
            blob, fd = self._tier.create()
            try:
                if whole and opened is not None:
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
                self._replace(opened, fd)

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
        if node.life is None:
            self._safety.adopt(node)
        assert node.life is not None
        node.blob, node.xattrs, node.ahead = blob, xattrs, False
        node.life.in_ram = True
        if node.names:
            self._tree.save(node)
        else:
            self._safety.deleted(node)

    def _start_afresh(self, node: Node) -> None:
        """A new, empty blob with the attributes of the old one, which is still to be published."""
        old = self._tier.path(node.retained[max(node.retained)]).stat()
        node.blob, fd = self._tier.create()
        apply(fd, like(old)._replace(atime_ns=None, mtime_ns=None))
        if (opened := self._open.get(node.ino)) is not None:
            self._replace(opened, fd)
        else:
            os.close(fd)
        self._tree.save(node)

    def _replace(self, opened: _Open, fd: int) -> None:
        opened.replaced.append(opened.fd)
        opened.fd, opened.is_blob = fd, True

    def _node(self, handle: int) -> Node:
        ino, _ = inode_of(handle)
        try:
            return self._tree.nodes[ino]
        except KeyError:
            raise answer(errno.EBADF) from None
