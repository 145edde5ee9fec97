"""The RAM tier: blobs (the bytes of captured files), and where they go when there is no room.

A blob is one file, named by a number. As root the tier is a private tmpfs with huge pages; without
root, a directory in a tmpfs that is there. A blob that the tier has no room for lives in the
overflow directory instead (the spill directory, or a hidden one on the shared file system): slower,
not less correct.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, Protocol

from cachexfs.errors import CacheXError
from cachexfs.ram import tmpfs

JOURNAL_ROOM_BYTES = 64 << 20
"""Room in the tmpfs beside the budget, so that a full tier can still write its journal."""

_MEMORY_SHARE = 0.8
_COPY_BYTES = 16 << 20


class Usage(NamedTuple):
    """Bytes in use, and the budget."""

    used_bytes: int
    limit_bytes: int


class Readiness(Protocol):
    """Blobs that wait for their file."""

    def take(self, path: bytes) -> tuple[int, int] | None: ...
    def give_up(self) -> None: ...


class Tier:
    """Blobs by number. All calls are short, except `overflow`, which belongs in a thread.

    `prewarm`: set by the daemon where it is wanted.
    """

    def __init__(self, root: Path, limit_bytes: int, *, pages: str, private: bool) -> None:
        self.root = root
        self.limit_bytes = limit_bytes
        self.pages = pages
        self.overflow_dir: Path | None = None
        self.prewarm: Readiness | None = None
        self._private = private
        self._data = root / "data"
        self._prefix = f"{self._data}/"
        self._data.mkdir(mode=0o700, exist_ok=True)
        self._overflowed: set[int] = set()
        self._next = 1 + max((int(path.name) for path in self._data.iterdir()), default=0)

    def use_overflow(self, directory: Path, unseen: Iterable[int] | None = None) -> None:
        """Name the directory for blobs without room; it is made when it is needed.

        Blobs that an earlier daemon moved there are found again. Where it cannot be looked at,
        `unseen` are the blobs that there should be: those that are not here are taken to be there.
        """
        self.overflow_dir = directory
        if unseen is not None:
            self._overflowed = {blob for blob in unseen if not (self._data / str(blob)).exists()}
            return
        found = directory.iterdir() if directory.is_dir() else iter(())
        self._overflowed = {int(path.name) for path in found if path.name.isdecimal()}
        self._next = max([self._next, *(number + 1 for number in self._overflowed)])

    def create(self, path: Callable[[], bytes] | None = None) -> tuple[int, int]:
        """A new, empty blob: its number and a descriptor, open for reading and writing.

        One that is ready for a file of this `path` is preferred.
        """
        if self.prewarm is not None and path is not None:
            ready = self.prewarm.take(path())
            if ready is not None:
                return ready
        blob, self._next = self._next, self._next + 1
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return blob, os.open(f"{self._prefix}{blob}", flags, 0o600)

    def path(self, blob: int) -> Path:
        """Where a blob is now."""
        if blob in self._overflowed and self.overflow_dir is not None:
            return self.overflow_dir / str(blob)
        return self._data / str(blob)

    def name(self, blob: int) -> str:
        """As `path`, for calls that are made for every small file."""
        return str(self.path(blob)) if blob in self._overflowed else f"{self._prefix}{blob}"

    def status(self, blob: int) -> os.stat_result:
        """The status of a blob. Raises OSError."""
        return os.stat(self.name(blob))

    def open(self, blob: int, flags: int = os.O_RDWR) -> int:
        """A descriptor of a blob. Raises OSError."""
        return os.open(self.name(blob), flags | os.O_CLOEXEC)

    def holds(self, blob: int) -> bool:
        """Whether the blob is still there."""
        return blob in self._overflowed or self.path(blob).exists()

    def is_overflowed(self, blob: int) -> bool:
        """Whether a blob lives outside the RAM."""
        return blob in self._overflowed

    def is_open_for_writing(self, blob: int) -> bool:
        """Whether anybody has a blob open, or mapped shared, for writing.

        The kernel grants a read lease only on a file that nobody can write (fcntl(2), F_SETLEASE).
        """
        fd = self.open(blob, os.O_RDONLY)
        try:
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        except OSError as error:
            return error.errno == errno.EAGAIN
        finally:
            os.close(fd)
        return False

    @property
    def has_overflowed(self) -> bool:
        """Whether any blob lives outside the RAM."""
        return bool(self._overflowed)

    def delete(self, blob: int) -> None:
        """Delete a blob; open descriptors keep its bytes until they are closed."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.name(blob))
        self._overflowed.discard(blob)

    def trim(self, blob: int) -> None:
        """Give back the pages beyond the end of a file that nobody is writing. Raises OSError.

        Truncating a file to the size that it has frees them, and changes nothing else.
        """
        os.truncate(self.name(blob), self.status(blob).st_size)

    def blobs(self) -> set[int]:
        """The numbers of all blobs."""
        return {int(path.name) for path in self._data.iterdir()} | self._overflowed

    def usage(self) -> Usage:
        """What is used of the budget, bytes of deleted files that are still open included."""
        if not self._private:
            sizes = (path.stat().st_blocks * 512 for path in self._data.iterdir())
            return Usage(sum(sizes), self.limit_bytes)
        values = os.statvfs(self.root)
        return Usage((values.f_blocks - values.f_bfree) * values.f_frsize, self.limit_bytes)

    def overflow(self, blob: int) -> None:
        """Move a blob out of the RAM. The caller reopens it; nobody may write meanwhile.

        Raises OSError, with the blob where it was.
        """
        assert self.overflow_dir is not None
        self.overflow_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        source, target = self.path(blob), self.overflow_dir / str(blob)
        try:
            _copy_whole(source, target)
        except OSError:
            target.unlink(missing_ok=True)
            raise
        self._overflowed.add(blob)
        source.unlink()

    def remove(self) -> None:
        """Take the whole tier away. Only when nothing in it is needed any more."""
        if self._private:
            tmpfs.unmount(self.root)
            self.root.rmdir()
        else:
            shutil.rmtree(self.root)
        if self.overflow_dir is not None:
            shutil.rmtree(self.overflow_dir, ignore_errors=True)


def open_tier(state: Path, limit_bytes: int, *, huge_pages: bool) -> Tier:
    """The tier below a mount's state directory, as it was left, or new.

    Raises `CacheXError` when there is no RAM to be had there.
    """
    root = state / "ram"
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    if _is_private(root):
        return Tier(root, limit_bytes, pages="as mounted", private=True)
    if os.geteuid() == 0:
        try:
            pages = tmpfs.mount(root, _cap(limit_bytes), huge_pages=huge_pages)
        except OSError as error:
            raise CacheXError(f"cannot mount a tmpfs on {root}: {error.strerror}") from None
        return Tier(root, limit_bytes, pages=pages, private=True)
    if (kind := tmpfs.file_system_of(root)) != "tmpfs":
        raise CacheXError(
            f"node.state_dir: {state} is on {kind}; without root it must be on a tmpfs, "
            f"for instance below /dev/shm"
        )
    return Tier(root, limit_bytes, pages="as found", private=False)


def _cap(limit_bytes: int) -> int:
    """The hard limit of the tmpfs: the budget and room for the journal, or more where there is.

    The budget is kept by the daemon. A program that writes past it into an open file cannot be
    held back, and is told ENOSPC only when the machine itself has no memory to spare.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(limit_bytes + JOURNAL_ROOM_BYTES, int(memory * _MEMORY_SHARE))


def _is_private(root: Path) -> bool:
    return root.stat().st_dev != root.parent.stat().st_dev and (
        tmpfs.file_system_of(root) == "tmpfs"
    )


def _copy_whole(source: Path, target: Path) -> None:
    """Content (holes stay holes), mode, owner and times, and all of it on disk."""
    with source.open("rb") as reader, target.open("wb") as writer:
        size = os.fstat(reader.fileno()).st_size
        os.ftruncate(writer.fileno(), size)
        for begin, end in data_ranges(reader.fileno(), size):
            copy_range(reader.fileno(), writer.fileno(), begin, end)
        status = os.fstat(reader.fileno())
        if os.geteuid() == 0:
            os.fchown(writer.fileno(), status.st_uid, status.st_gid)
        os.fchmod(writer.fileno(), status.st_mode & 0o7777)
        os.utime(writer.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
        os.fsync(writer.fileno())


def data_ranges(fd: int, size_bytes: int) -> list[tuple[int, int]]:
    """The ranges [begin, end) of a file that hold data, in order; holes are left out."""
    ranges, offset = [], 0
    while offset < size_bytes:
        try:
            begin = os.lseek(fd, offset, os.SEEK_DATA)
        except OSError:  # ENXIO: only a hole is left
            break
        offset = os.lseek(fd, begin, os.SEEK_HOLE)
        ranges.append((begin, offset))
    return ranges


def copy_range(source: int, target: int, begin: int, end: int) -> None:
    """Copy bytes [begin, end) to the same place, in the kernel. Raises OSError."""
    os.lseek(target, begin, os.SEEK_SET)
    while begin < end:
        sent = os.sendfile(target, source, begin, min(_COPY_BYTES, end - begin))
        if sent == 0:
            raise OSError(5, "the file became shorter while it was copied")
        begin += sent
