"""Open files: descriptors by inode number, and the portable data path.

A file handle is made from the inode number, not kept in a table: `handle = inode * 2 + writing`.
All opens of an inode share one descriptor, of its blob, or of the source's file as long as nobody
writes: the first write copies it into the RAM tier.

`FileInfo.direct_io` for write-only opens halves the copying that a write costs; such a descriptor
cannot be mapped shared, so every open that could be goes through the page cache.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from dataclasses import dataclass, field
from functools import partial

import pyfuse3
import trio

from cachexfs.durability.actions import Slot
from cachexfs.durability.states import State
from cachexfs.mount import attributes
from cachexfs.mount.datapath import Choice, DataPath, Use, Wish, choose
from cachexfs.mount.link.backings import Backings
from cachexfs.mount.ports import Safety, Source
from cachexfs.ram.attributes import Changes, apply, like
from cachexfs.ram.node import Node, Origin, Signature
from cachexfs.ram.room import Room
from cachexfs.ram.tier import Tier
from cachexfs.ram.tree import Tree

log = logging.getLogger(__name__)

PASSTHROUGH_ROOM_BYTES = 64 << 20
"""With less room than this in the RAM tier, new writers go through the daemon, which can hold them
back; past it, the kernel would tell them ENOSPC."""


_SET_IDS = stat.S_ISUID | stat.S_ISGID

COUNTED = 32
"""Opens and closes of an inode that are remembered by the number of their request: more than can
be under way at once without having been replied to."""


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
        self.backings: Backings | None = None
        self._source_can_back = True

    def fd(self, ino: int) -> int | None:
        """The descriptor of an open file; None when it is not open."""
        found = self._open.get(ino)
        return found.fd if found else None

    # --- open and close -------------------------------------------------------------------------

    async def open(self, node: Node, flags: int, unique: int = 0) -> pyfuse3.FileInfo:
        """Open a node with the flags of open(2); `unique` names the request, if it has a name."""
        writing = flags & os.O_ACCMODE != os.O_RDONLY
        choice = self._choose(node, writing)
        if choice.afresh:
            await self._start_new_inode(node, flags)
            raise answer(errno.ESTALE)  # the kernel looks the name up again, and opens that
        if self._is_first(node, unique):
            node.opens += 1  # before anything awaits: an open file is not evicted
            node.writers += writing
        try:
            if flags & os.O_TRUNC:  # first: then the old content need not be reached
                await self.truncate(node, 0)
            opened = await self._ensure_open(node)
            if choice.copy_first:
                await self._copy_up(node)
            if choice.path is DataPath.PASSTHROUGH:
                self._pass_through(node, opened.fd, writing)
            self._journal_opens(node)
        except BaseException:
            self._leave(node, writing)
            raise
        return self._info(node, flags)

    def _choose(self, node: Node, writing: bool) -> Choice:
        backings = self.backings
        wish = Wish(
            writing=writing,
            in_ram=node.blob is not None,
            tier_is_full=not self._room.has(PASSTHROUGH_ROOM_BYTES),
            source_can_back=self._source_can_back,
        )
        use = Use(node.backing_id is not None, node.opens)
        return choose(backings is not None, use, wish)

    def _pass_through(self, node: Node, fd: int, writing: bool) -> None:
        """Let the kernel read and write the file itself, if it can; the daemon does otherwise."""
        assert self.backings is not None
        if node.backing_id is None:
            try:
                node.backing_id = self.backings.add(node.ino, fd)
            except OSError as error:
                log.info("inode %d goes through the daemon: %s", node.ino, error)
                self._source_can_back &= node.blob is not None
        if writing and node.backing_id is not None:
            self._safety.written(node)  # from here on it may change at any time, unseen

    def _is_first(self, node: Node, unique: int) -> bool:
        """Whether an open or release was not counted yet; one that is resent may have been."""
        if unique and unique in node.counted:
            return False
        if unique:
            node.counted = [*node.counted[-COUNTED:], unique]
        return True

    async def _start_new_inode(self, node: Node, flags: int) -> None:
        """A file that is read past the daemon is to be written: its name gets an inode of ours.

        Who has the old one open goes on reading what was there, as after a rename over it.
        """
        opened = await self._ensure_open(node)
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

    def created(self, node: Node, fd: int, flags: int, unique: int = 0) -> pyfuse3.FileInfo:
        """Take the descriptor of a blob that was just made for a new file."""
        self._is_first(node, unique)
        node.opens, node.writers = 1, int(flags & os.O_ACCMODE != os.O_RDONLY)
        self._open[node.ino] = _Open(fd, is_blob=True)
        if self._choose_for_new():
            self._pass_through(node, fd, writing=bool(node.writers))
        self._journal_opens(node)
        return self._info(node, flags)

    def _choose_for_new(self) -> bool:
        wish = Wish(True, True, not self._room.has(PASSTHROUGH_ROOM_BYTES), True)
        return choose(self.backings is not None, Use(False, 0), wish).path is DataPath.PASSTHROUGH

    def flush(self, handle: int) -> None:
        """A descriptor was closed: what it wrote is captured now."""
        ino, writing = inode_of(handle)
        node = self._tree.nodes.get(ino)
        if writing and node is not None and node.names:
            self.distrust(node)
            self._note_changes(node)
            self._safety.settled(node, start=False)

    def _note_changes(self, node: Node) -> None:
        """What the kernel wrote past us since the file last settled is a new version."""
        if node.backing_id is not None and node.blob is not None:
            status = self._tier.status(node.blob)
            if node.settled_as != Signature(status.st_size, status.st_mtime_ns):
                self._safety.written(node)

    # With passthrough the kernel leaves it to us to take set-ID bits from a file that is written
    # (HANDLE_KILLPRIV_V2), and we do not see the writes. So bits stay as long as the file looks as
    # it did when it was given them; else they go when the writer closes. Nobody can run it before:
    # a file that is open for writing cannot be executed.

    def trust(self, node: Node) -> None:
        """The file was given its mode knowingly, with the content that it has now."""
        assert node.blob is not None
        status = self._tier.status(node.blob)
        if status.st_mode & _SET_IDS:
            node.trusted_as = Signature(status.st_size, status.st_mtime_ns)
            self._tree.save(node)

    def distrust(self, node: Node) -> None:
        """Take set-ID bits away, if the content is not what they were given to."""
        if self.backings is None or node.blob is None:
            return
        status = self._tier.status(node.blob)
        looks = Signature(status.st_size, status.st_mtime_ns)
        if status.st_mode & _SET_IDS and looks != node.trusted_as:
            os.chmod(self._tier.name(node.blob), status.st_mode & 0o7777 & ~_SET_IDS)

    def before_settling(self, node: Node) -> None:
        """To be called before an fsync or a rename settles a file.

        What settled before while it was open may have changed through a mapping, without a sign.
        """
        if node.writers:
            self._note_changes(node)
            if node.unsure:
                self._safety.written(node)

    def _journal_opens(self, node: Node) -> None:
        """The next daemon has to know what the kernel holds, if there can be a next daemon."""
        if self.backings is not None:
            self._tree.save(node)

    def release(self, handle: int, unique: int = 0) -> None:
        """The last descriptor of an open was closed."""
        ino, writing = inode_of(handle)
        node = self._tree.nodes.get(ino)
        if node is None or not self._is_first(node, unique):
            return
        with self._tree.transaction():
            if writing:
                self.distrust(node)
                self._note_changes(node)
            self._leave(node, writing)
            if node.writers == 0:  # also of a reader: open(2) may create and not write
                self._safety.closed(node)

    def _let_go(self, node: Node) -> None:
        """The last close: the kernel does not need the backing file any more."""
        if self.backings is not None and node.backing_id is not None:
            self.backings.drop(node.ino)
            node.backing_id = None

    def _leave(self, node: Node, writing: bool) -> None:
        node.opens = max(0, node.opens - 1)
        node.writers = max(0, node.writers - writing)
        if node.opens == 0 and (closed := self._open.pop(node.ino, None)):
            for fd in (closed.fd, *closed.replaced):
                os.close(fd)
        if node.opens == 0:
            self._let_go(node)
        self._journal_opens(node)
        if node.opens == 0 and node.state is State.GONE:
            self._bury(node)

    def _bury(self, node: Node) -> None:
        """The last name and the last descriptor are gone: so are the bytes."""
        if node.blob is not None:
            self._tree.after_commit(partial(self._tier.delete, node.blob))
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
        if not self._fits(node, len(data)):
            await self._make_room(node, len(data))
        return await self._write_whole(node, offset, data)

    async def to_read(self, handle: int) -> int:
        """The descriptor to read an open file from."""
        return (await self._ensure_open(self._node(handle))).fd

    async def to_write(self, handle: int) -> int:
        """The descriptor to change an open file through; it counts as written."""
        node = self._node(handle)
        if node.blob is None:
            await self._copy_up(node)
        self._safety.written(node)
        return (await self._ensure_open(node)).fd

    async def truncate(self, node: Node, size: int) -> None:
        """Set the size; a file of the shared file system becomes ours by it."""
        if node.blob is None and node.backing_id is not None:  # read past us, from the source
            await self._start_new_inode(node, os.O_TRUNC if size == 0 else 0)
            raise answer(errno.ESTALE)
        if node.blob is None:
            await self._copy_up(node, whole=size > 0)
        elif size == 0 and node.backing_id is None and self._safety.retain(node):
            self._start_afresh(node)
        assert node.blob is not None
        self._safety.written(node)
        os.truncate(self._tier.path(node.blob), size)
        self.distrust(node)
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

    def _fits(self, node: Node, length: int) -> bool:
        """Whether more bytes of a file need no room to be made; outside the RAM they never do."""
        is_outside = node.blob is not None and self._tier.is_overflowed(node.blob)
        return is_outside or self._room.has(length)

    async def _make_room(self, node: Node, length: int) -> None:
        opened = self._open[node.ino]
        async with opened.lock:
            if not self._fits(node, length) and await self._room.make(node, length):
                assert node.blob is not None
                self._move(opened, self._tier.open(node.blob))

    def _move(self, opened: _Open, fd: int) -> None:
        """The same descriptor leads to the new place: the pages in the old one are free at once."""
        os.dup2(fd, opened.fd, inheritable=False)
        os.close(fd)

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
        self.trust(node)
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
