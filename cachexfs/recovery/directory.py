"""Recovered files below a directory. Nothing half is visible, and nothing leaves the directory.

Directories are opened one name at a time with O_NOFOLLOW, so a symbolic link (recovered or already
there) leads nowhere: what it points to is never written through.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import trio

from cachexfs.durability.checksum import CHUNK_BYTES, chunk_crc
from cachexfs.peers import paths
from cachexfs.peers.messages import Replica
from cachexfs.ram.writing import write_all
from cachexfs.recovery.ports import AlreadyThere, SinkRefused

T = TypeVar("T")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class DirectorySink:
    """Writes below `to`, which is made if needed. `overwrite_newer`: also over newer files.

    What is there already counts as newer by its modification time. Owners are restored as far as
    the process may; modes, times and extended attributes always. Raises `SinkRefused`, `OSError`.
    """

    def __init__(self, to: Path, *, overwrite_newer: bool = False) -> None:
        self.to = to
        self._overwrite_newer = overwrite_newer
        self._limiter = trio.CapacityLimiter(2)

    async def directory(self, replica: Replica) -> None:
        """Make the directory and give it its attributes."""
        await self.in_thread(partial(self._directory, replica))

    async def symlink(self, replica: Replica) -> None:
        """Make the symbolic link, in one step."""
        await self.in_thread(partial(self._symlink, replica))

    async def link(self, replica: Replica, old: bytes) -> None:
        """A second name for the file at `old`, in one step."""
        await self.in_thread(partial(self._link, replica, old))

    async def holds(self, path: bytes) -> bool:
        """Whether there is a regular file."""
        return await self.in_thread(partial(self._holds, path))

    async def begin(self, replica: Replica) -> DirectoryWriter:
        """A temporary file beside the final name."""
        return await self.in_thread(partial(self._begin, replica))

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run what blocks."""
        return await trio.to_thread.run_sync(work, limiter=self._limiter)

    def _directory(self, replica: Replica) -> None:
        with self._parent(replica.path) as (parent, name):
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=parent)
            fd = os.open(name, _DIRECTORY, dir_fd=parent)
            try:
                apply_attributes(fd, replica)
            finally:
                os.close(fd)
            os.fsync(parent)

    def _symlink(self, replica: Replica) -> None:
        with self._parent(replica.path) as (parent, name):
            self._check_newer(parent, name, replica)
            temporary = _temporary_name()
            os.symlink(replica.target, temporary, dir_fd=parent)
            with contextlib.suppress(PermissionError):
                os.chown(temporary, replica.uid, replica.gid, dir_fd=parent, follow_symlinks=False)
            times = (replica.atime_ns, replica.mtime_ns)
            os.utime(temporary, ns=times, dir_fd=parent, follow_symlinks=False)
            os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
            os.fsync(parent)

    def _link(self, replica: Replica, old: bytes) -> None:
        with (
            self._parent(old) as (old_parent, old_name),
            self._parent(replica.path) as (parent, name),
        ):
            self._check_newer(parent, name, replica)
            temporary = _temporary_name()
            os.link(
                old_name, temporary, src_dir_fd=old_parent, dst_dir_fd=parent,
                follow_symlinks=False,
            )  # fmt: skip
            os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
            # Of two names of one file rename(2) does nothing, and the temporary one stays.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=parent)
            os.fsync(parent)

    def _holds(self, path: bytes) -> bool:
        try:
            with self._parent(path, make=False) as (parent, name):
                return stat.S_ISREG(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
        except (OSError, SinkRefused):
            return False

    def _begin(self, replica: Replica) -> DirectoryWriter:
        with self._parent(replica.path) as (parent, name):
            self._check_newer(parent, name, replica)
            if _is_same(parent, name, replica):
                raise AlreadyThere(f"{name!r} is there already")
            return DirectoryWriter(self, replica, os.dup(parent), name)

    def _check_newer(self, parent: int, name: bytes, replica: Replica) -> None:
        try:
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return
        if found.st_mtime_ns > replica.mtime_ns and not self._overwrite_newer:
            raise SinkRefused("a newer file is there")

    @contextlib.contextmanager
    def _parent(self, path: bytes, *, make: bool = True) -> Iterator[tuple[int, bytes]]:
        """A descriptor of the directory that `path` is in, and the last name."""
        *above, name = paths.check(path).split(b"/")
        if make:
            self.to.mkdir(parents=True, exist_ok=True)
        fd = os.open(self.to, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for directory in above:
                fd = _descend(fd, directory, make=make)
            yield fd, name
        finally:
            os.close(fd)


class DirectoryWriter:
    """A file on its way; made by `DirectorySink.begin`."""

    def __init__(self, sink: DirectorySink, replica: Replica, parent: int, name: bytes) -> None:
        self._sink = sink
        self._replica = replica
        self._parent = parent
        self._name = name
        self._temporary = _temporary_name()
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._fd = os.open(self._temporary, flags, 0o600, dir_fd=parent)

    async def write_at(self, offset: int, data: bytes) -> None:
        """One chunk."""
        await self._sink.in_thread(partial(write_all, self._fd, offset, data))

    async def finish(self) -> None:
        """On disk, with its attributes, then under its name."""
        try:
            await self._sink.in_thread(self._finish)
        except BaseException:
            await self.abort()
            raise

    async def abort(self) -> None:
        """The temporary file goes. May be called twice."""
        with trio.CancelScope(shield=True):
            await self._sink.in_thread(self._abort)

    def _finish(self) -> None:
        os.ftruncate(self._fd, self._replica.size_bytes)
        apply_attributes(self._fd, self._replica)
        os.fsync(self._fd)
        os.rename(self._temporary, self._name, src_dir_fd=self._parent, dst_dir_fd=self._parent)
        os.fsync(self._parent)
        self._close()

    def _abort(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._temporary, dir_fd=self._parent)
            self._close()

    def _close(self) -> None:
        os.close(self._fd)
        os.close(self._parent)
        self._fd = -1


def apply_attributes(fd: int, replica: Replica) -> None:
    """Owner (where permitted), mode, extended attributes (where supported), times."""
    mode = replica.mode & 0o7777
    try:
        os.chown(fd, replica.uid, replica.gid)
    except PermissionError:
        mode = _without_foreign_ids(mode, os.fstat(fd), replica)
    os.fchmod(fd, mode)
    for name, value in replica.xattrs.items():
        with contextlib.suppress(OSError):
            os.setxattr(fd, name, value)
    os.utime(fd, ns=(replica.atime_ns, replica.mtime_ns))


def _without_foreign_ids(mode: int, found: os.stat_result, replica: Replica) -> int:
    """Without the set-ID bits of an owner that could not be given: they would lend out our own."""
    if found.st_uid != replica.uid:
        mode &= ~stat.S_ISUID
    if found.st_gid != replica.gid and not stat.S_ISDIR(found.st_mode):
        mode &= ~stat.S_ISGID
    return mode


def _descend(fd: int, name: bytes, *, make: bool) -> int:
    """The directory `name` in `fd`, made if needed; `fd` is closed when that succeeds."""
    with contextlib.suppress(FileExistsError):
        if make:
            os.mkdir(name, 0o755, dir_fd=fd)
    try:
        inner = os.open(name, _DIRECTORY, dir_fd=fd)
    except NotADirectoryError:
        raise SinkRefused(f"{name!r} on the way is not a directory") from None
    os.close(fd)
    return inner


def _is_same(parent: int, name: bytes, replica: Replica) -> bool:
    """Whether the file is there with just this content and these times."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
    except OSError:
        return False
    try:
        found = os.fstat(fd)
        looks_so = (found.st_size, found.st_mtime_ns) == (replica.size_bytes, replica.mtime_ns)
        return looks_so and stat.S_ISREG(found.st_mode) and _crcs_of(fd) == replica.crcs
    finally:
        os.close(fd)


def _crcs_of(fd: int) -> bytes:
    """The checksums of a file's content, chunk by chunk."""
    offsets = range(0, os.fstat(fd).st_size, CHUNK_BYTES)
    return b"".join(chunk_crc(os.pread(fd, CHUNK_BYTES, offset)) for offset in offsets)


def _temporary_name() -> bytes:
    return b".cachexfs-" + secrets.token_hex(8).encode()
