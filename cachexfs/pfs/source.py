"""Asking the shared file system, with a time limit: what the mount needs while a program waits.

Every call runs in a thread (`patience`), and has its time limit there.

Objects are reached through a directory's descriptor and a name, and are held against the identity
that the node is known by; so a name that another node has reused is never mistaken for the old one.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

import trio

from cachexfs.durability.actions import Slot
from cachexfs.pfs import renameat2
from cachexfs.pfs.directories import Directories, Root
from cachexfs.pfs.health import Health, is_trouble
from cachexfs.pfs.patience import Patience
from cachexfs.ram.attributes import Changes, apply, read_xattrs
from cachexfs.ram.node import HIDDEN, ROOT, Node, Origin
from cachexfs.ram.tier import copy_range, data_ranges
from cachexfs.ram.tree import Tree

T = TypeVar("T")
log = logging.getLogger(__name__)
_AGAIN_S = 5.0
_SWEEPS = 5
"""Of a directory that is to go: another node may try again to publish into it between two."""

Seen = dict[Slot, os.stat_result | None]
"""What names were seen to stand for; None for nothing."""

_NOTHING_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESTALE})


class _Place(NamedTuple):
    """What a thread needs to find a node's object.

    `others`: while a rename is being carried out there, it may be under its new name already.
    """

    ino: int
    slot: Slot | None
    origin: Origin | None
    others: frozenset[Slot] = frozenset()


class Source:
    """The source directory. Raises OSError as the file system does, `SourceBlocked` for silence."""

    def __init__(self, path: Path, tree: Tree, timeout_s: float, root: Root | None = None) -> None:
        self.path = path
        self.health = Health(timeout_s, time.monotonic)
        self.directories = Directories(path, tree, root)
        self._patience = Patience(self.health, timeout_s)
        self.work = self._patience.work

    async def watch(self) -> None:
        """Look at the root from time to time, so that silence is noticed, and its end."""
        await self._patience.watch(lambda: self._stat_of(_Place(ROOT, None, None)))

    async def insist(self, call: Callable[[], object]) -> None:
        """Do something there in the background, and try again until it works."""
        while True:
            try:
                await self.work(call)
                return
            except OSError as error:
                log.info("tried again in %.0f s: %s", _AGAIN_S, error)
                await trio.sleep(_AGAIN_S)

    async def regularly(self, call: Callable[[], object], every_s: float) -> None:
        """Do something there in the background now, and again and again."""
        while True:
            await self.insist(call)
            await trio.sleep(every_s)

    def is_trouble(self, error: OSError) -> bool:
        """Whether an error is the file system's own trouble, to be waited out."""
        return is_trouble(error)

    # --- reaching an object, in a thread --------------------------------------------------------

    @contextmanager
    def directory(self, ino: int) -> Iterator[int]:
        """A descriptor of a directory for the time of a block."""
        fd = self.directories.fd(ino)
        try:
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def object(
        self,
        ino: int,
        slot: Slot | None,
        origin: Origin | None,
        others: frozenset[Slot] = frozenset(),
    ) -> Iterator[str]:
        """A path in /proc that leads to the very object, for the time of a block.

        Raises OSError(ESTALE) when another object has taken the name.
        """
        fd = self._open(os.O_PATH | os.O_NOFOLLOW, _Place(ino, slot, origin, others))
        try:
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)

    def _open(self, flags: int, place: _Place) -> int:
        ino, slot, origin, others = place
        if ino == ROOT or slot is None:
            return self.directories.fd(ino)
        try:
            return self._open_at(slot, origin, flags)
        except OSError:
            for other in others if origin else ():
                with suppress(OSError):
                    return self._open_at(other, origin, flags)
            raise

    def _open_at(self, slot: Slot, origin: Origin | None, flags: int) -> int:
        with self.directory(slot.parent) as parent:
            fd = os.open(slot.name, flags | os.O_CLOEXEC, dir_fd=parent)
        status = os.fstat(fd)
        if origin and Origin(status.st_dev, status.st_ino) != origin:
            os.close(fd)
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return fd

    def _stat_of(self, place: _Place) -> os.stat_result:
        with self.object(*place) as path:
            return os.stat(path)

    # --- questions ------------------------------------------------------------------------------

    async def lookup(self, slot: Slot) -> os.stat_result | None:
        """The status of a name; None when there is nothing."""
        if slot.name.startswith(HIDDEN):
            return None
        return await self._patience.ask(lambda: self._at(slot))

    def look(self, *slots: Slot) -> Seen:
        """What names stand for, in the thread that calls."""
        return {slot: self._at(slot) for slot in slots}

    def _at(self, slot: Slot) -> os.stat_result | None:
        try:
            with self.directory(slot.parent) as fd:
                return os.stat(slot.name, dir_fd=fd, follow_symlinks=False)
        except OSError as error:
            if error.errno in _NOTHING_THERE:
                return None
            raise

    async def listing(self, ino: int) -> dict[bytes, os.stat_result]:
        """What a directory holds, without what is hidden."""

        def call() -> dict[bytes, os.stat_result]:
            with self.directory(ino) as fd:
                return _list(fd)

        return await self._patience.ask(call)

    async def status(self, node: Node) -> os.stat_result:
        """The status of a node's object."""
        place = _place(node)
        return await self._patience.ask(lambda: self._stat_of(place))

    async def open(self, node: Node) -> int:
        """A descriptor for reading a file."""
        place = _place(node)
        return await self._patience.ask(lambda: self._open(os.O_RDONLY | os.O_NOFOLLOW, place))

    async def read(self, fd: int, offset: int, length: int) -> bytes:
        """Up to `length` bytes at `offset` of an open file."""
        return await self._patience.ask(lambda: os.pread(fd, length, offset))

    async def copy_out(self, source: int, target: int) -> None:
        """Copy the whole content of one open file into another; holes stay holes."""

        def call() -> None:
            size = os.fstat(source).st_size
            os.ftruncate(target, size)
            for begin, end in data_ranges(source, size):
                copy_range(source, target, begin, end)

        await self.work(call)

    async def readlink(self, node: Node) -> bytes:
        """The target of a symbolic link."""
        place = _place(node)

        def call() -> bytes:
            fd = self._open(os.O_PATH | os.O_NOFOLLOW, place)
            try:
                return os.readlink(b"", dir_fd=fd)
            finally:
                os.close(fd)

        return await self._patience.ask(call)

    async def statvfs(self) -> os.statvfs_result:
        """Room on the shared file system."""

        def call() -> os.statvfs_result:
            with self.object(ROOT, None, None) as path:
                return os.statvfs(path)

        return await self._patience.ask(call)

    async def xattrs(self, node: Node) -> dict[bytes, bytes]:
        """All extended attributes of a node's object."""
        place = _place(node)

        def call() -> dict[bytes, bytes]:
            with self.object(*place) as path:
                return read_xattrs(path)

        return await self._patience.ask(call)

    async def getxattr(self, node: Node, name: bytes) -> bytes:
        """One extended attribute of a node's object."""
        place = _place(node)

        def call() -> bytes:
            with self.object(*place) as path:
                return os.getxattr(path, name)

        return await self._patience.ask(call)

    # --- changes, made at once ------------------------------------------------------------------

    async def mkdir(self, slot: Slot, mode: int, uid: int, gid: int) -> os.stat_result:
        """Make a directory."""
        return await self._patience.alter(lambda: self.make_directory(slot, mode, uid, gid))

    def make_directory(self, slot: Slot, mode: int, uid: int, gid: int) -> os.stat_result:
        """As `mkdir`, in the thread that calls. A set-group-ID parent passes its group on."""
        with self.directory(slot.parent) as fd:
            os.mkdir(slot.name, mode & 0o7777, dir_fd=fd)
            made = os.stat(slot.name, dir_fd=fd, follow_symlinks=False)
            inherits = os.fstat(fd).st_mode & stat.S_ISGID
            _own(slot.name, fd, uid, -1 if inherits else gid)
            os.chmod(slot.name, (mode & 0o7777) | (made.st_mode & stat.S_ISGID), dir_fd=fd)
            return os.stat(slot.name, dir_fd=fd, follow_symlinks=False)

    async def mknod(self, slot: Slot, mode: int, rdev: int, uid: int, gid: int) -> os.stat_result:
        """Make a FIFO, socket or device node."""

        def call() -> os.stat_result:
            with self.directory(slot.parent) as fd:
                os.mknod(slot.name, mode, rdev, dir_fd=fd)
                _own(slot.name, fd, uid, gid)
                return os.stat(slot.name, dir_fd=fd, follow_symlinks=False)

        return await self._patience.alter(call)

    async def unlink(self, slot: Slot) -> Seen:
        """Remove a name."""

        def call() -> Seen:
            with self.directory(slot.parent) as fd:
                os.unlink(slot.name, dir_fd=fd)
            return {slot: None}

        return await self._patience.alter(call)

    async def rmdir(self, slot: Slot) -> Seen:
        """Remove an empty directory; what we hid in it does not count."""

        def call() -> Seen:
            self.remove_directory(slot)
            return {slot: None}

        return await self._patience.alter(call)

    def remove_directory(self, slot: Slot) -> None:
        """As `rmdir`, in the thread that calls."""
        with self.directory(slot.parent) as fd:
            for tries_left in reversed(range(_SWEEPS)):
                try:
                    os.rmdir(slot.name, dir_fd=fd)
                    return
                except OSError as error:
                    if error.errno != errno.ENOTEMPTY or not tries_left:
                        raise
                _remove_hidden(slot.name, fd)

    async def rename(self, old: Slot, new: Slot, flags: int = 0) -> Seen:
        """Move a name; `flags` as for renameat2(2)."""

        def call() -> Seen:
            self.move(old, new, flags)
            return self.look(old, new)

        return await self._patience.alter(call)

    def move(self, old: Slot, new: Slot, flags: int = 0) -> None:
        """As `rename`, in the thread that calls."""
        with self.directory(old.parent) as old_fd, self.directory(new.parent) as new_fd:
            renameat2.rename(old_fd, old.name, new_fd, new.name, flags)

    async def link(self, old: Slot, new: Slot) -> Seen:
        """A second name for a file."""

        def call() -> Seen:
            self.make_link(old, new)
            return self.look(old, new)

        return await self._patience.alter(call)

    def make_link(self, old: Slot, new: Slot) -> None:
        """As `link`, in the thread that calls."""
        with self.directory(old.parent) as old_fd, self.directory(new.parent) as new_fd:
            os.link(old.name, new.name, src_dir_fd=old_fd, dst_dir_fd=new_fd, follow_symlinks=False)

    async def change(self, node: Node, changes: Changes) -> os.stat_result:
        """Set attributes of a node's object; returns what it has then."""
        place = _place(node)

        def call() -> os.stat_result:
            with self.object(*place) as path:
                apply(path, changes)
                return os.stat(path)

        return await self._patience.alter(call)

    async def setxattr(self, node: Node, name: bytes, value: bytes | None) -> None:
        """Set an extended attribute, or remove it with None."""
        place = _place(node)

        def call() -> None:
            with self.object(*place) as path:
                if value is None:
                    os.removexattr(path, name)
                else:
                    os.setxattr(path, name, value)

        await self._patience.alter(call)


def _place(node: Node) -> _Place:
    """Where an object is to be found, copied in the event loop."""
    if node.place is None and node.ino != ROOT:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    return _Place(node.ino, node.place, node.origin, frozenset(node.names - {node.place}))


def _own(name: bytes, parent: int, uid: int, gid: int) -> None:
    # Without root everything belongs to the one user that we can be, and changing it fails.
    if os.geteuid() == 0:
        os.chown(name, uid, gid, dir_fd=parent, follow_symlinks=False)


def _list(parent: int) -> dict[bytes, os.stat_result]:
    fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=parent)
    try:
        found: dict[bytes, os.stat_result] = {}
        with os.scandir(fd) as entries:
            for entry in entries:
                name = os.fsencode(entry.name)
                if not name.startswith(HIDDEN):
                    _add_status(found, name, fd)
        return found
    finally:
        os.close(fd)


def _add_status(found: dict[bytes, os.stat_result], name: bytes, fd: int) -> None:
    with suppress(FileNotFoundError):  # removed between the listing and the look
        found[name] = os.stat(name, dir_fd=fd, follow_symlinks=False)


def _remove_hidden(name: bytes, parent: int) -> None:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(name, flags, dir_fd=parent)
    try:
        for entry in os.listdir(fd):
            if os.fsencode(entry).startswith(HIDDEN):
                with suppress(FileNotFoundError):
                    os.unlink(entry, dir_fd=fd)
    finally:
        os.close(fd)
