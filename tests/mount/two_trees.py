"""The same operations in a mount and in a plain directory, and whether both tell the same.

`Tree` is one of the two; `both` runs an operation on each and compares what comes back: the value,
or the errno. Descriptors are kept in slots, so that operations meet files that are open elsewhere.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

NOREPLACE, EXCHANGE = 1, 2
_libc = ctypes.CDLL(None, use_errno=True)


def renameat2(old: Path, new: Path, flags: int) -> None:
    """renameat2(2) on two paths."""
    if _libc.renameat2(-100, os.fsencode(old), -100, os.fsencode(new), flags) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Tree:
    """A directory in which operations are made, with the descriptors that are open in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.open_files: dict[int, int] = {}
        self.maps: dict[int, mmap.mmap] = {}

    def path(self, name: str) -> Path:
        """A path in it."""
        return self.root / name

    def open(self, slot: int, name: str, flags: int, mode: int = 0o644) -> None:
        """Open into a slot; what was open there stays until this worked, then it is closed."""
        fd = os.open(self.path(name), flags, mode)
        self.close(slot)
        self.open_files[slot] = fd

    def fd(self, slot: int) -> int:
        """The descriptor in a slot; EBADF for none."""
        if slot not in self.open_files:
            raise OSError(errno.EBADF, "nothing is open there")
        return self.open_files[slot]

    def close(self, slot: int) -> None:
        """Close what is open in a slot, if anything is."""
        if (mapped := self.maps.pop(slot, None)) is not None:
            mapped.close()
        if (fd := self.open_files.pop(slot, None)) is not None:
            os.close(fd)

    def close_all(self) -> None:
        """Close every slot."""
        for slot in list(self.open_files):
            self.close(slot)

    # --- operations -----------------------------------------------------------------------------

    def read(self, slot: int, offset: int, length: int) -> bytes:
        """pread(2)."""
        return os.pread(self.fd(slot), length, offset)

    def write(self, slot: int, data: bytes, offset: int | None) -> int:
        """pwrite(2), or write(2) for no offset."""
        if offset is None:
            os.lseek(self.fd(slot), 0, os.SEEK_SET)
            return os.write(self.fd(slot), data)
        return os.pwrite(self.fd(slot), data, offset)

    def fstat(self, slot: int) -> tuple[int, ...]:
        """Size, mode and names of an open file."""
        found = os.fstat(self.fd(slot))
        return found.st_size, found.st_mode, found.st_nlink

    def map_shared(self, slot: int, data: bytes, offset: int) -> bytes:
        """Write through a shared map, and read the file by its descriptor then."""
        fd = self.fd(slot)
        size = os.fstat(fd).st_size
        if size == 0:
            return b""
        with mmap.mmap(fd, size) as mapped:
            begin = offset % size
            end = min(size, begin + len(data))
            mapped[begin:end] = data[: end - begin]
            return os.pread(fd, size, 0)

    def map_private(self, slot: int) -> bytes:
        """All of a file, through a private map that is scribbled on."""
        fd = self.fd(slot)
        size = os.fstat(fd).st_size
        if size == 0:
            return b""
        with mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE) as mapped:
            seen = mapped[:]
            mapped[0] = (mapped[0] + 1) % 256
            return seen

    def content(self, name: str) -> bytes:
        """All of a file by its path."""
        return self.path(name).read_bytes()

    def status(self, name: str) -> tuple[Any, ...]:
        """What stat(2) says and both must agree on."""
        return _comparable(os.lstat(self.path(name)))

    def names(self, name: str) -> list[str]:
        """The names in a directory."""
        return sorted(os.listdir(self.path(name)))

    def snapshot(self, *, times: bool = False) -> dict[str, Any]:
        """Everything that is in it: path -> kind, mode, size, content, target, xattrs."""
        return snapshot(self.root, times=times)


def _comparable(status: os.stat_result) -> tuple[Any, ...]:
    kind = stat.S_IFMT(status.st_mode)
    if kind == stat.S_IFDIR:
        return kind, status.st_mode, status.st_uid, status.st_gid
    return kind, status.st_mode, status.st_size, status.st_nlink, status.st_uid, status.st_gid


def snapshot(root: Path, *, times: bool = False) -> dict[str, Any]:
    """Everything below a directory, with groups of hard links as sets of paths."""
    found: dict[str, Any] = {}
    links: dict[int, list[str]] = {}
    for above, directories, files in os.walk(root):
        for name in (*directories, *files):
            path = Path(above) / name
            status = path.lstat()
            key = str(path.relative_to(root))
            found[key] = (*_comparable(status), *_content(path, status))
            if times and not stat.S_ISDIR(status.st_mode):
                found[key] += (status.st_mtime_ns,)
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                links.setdefault(status.st_ino, []).append(key)
    found["<hard links>"] = sorted(sorted(group) for group in links.values())
    return found


def _content(path: Path, status: os.stat_result) -> tuple[Any, ...]:
    if stat.S_ISLNK(status.st_mode):
        return (os.readlink(path),)
    xattrs = {name: os.getxattr(path, name) for name in os.listxattr(path)}
    if stat.S_ISREG(status.st_mode):
        return path.read_bytes(), xattrs
    return (xattrs,)


def outcome(call: Callable[[], Any]) -> Any:
    """What a call returns, or the name of its errno."""
    try:
        return call()
    except OSError as error:
        return errno.errorcode[error.errno or 0]


def difference(mine: dict[str, Any], plain: dict[str, Any]) -> list[str]:
    """Where two snapshots differ, one line for each path."""
    return [
        f"{key}: {mine.get(key)!r} in the mount, {plain.get(key)!r} in the plain directory"
        for key in sorted({*mine, *plain})
        if mine.get(key) != plain.get(key)
    ]
