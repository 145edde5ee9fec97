"""The directory behind the demo's storage, addressed by inode.

Every inode that the kernel knows is held by an O_PATH descriptor, so a rename strands nothing, a
number cannot be used again while it is known, and `/proc/self/fd/N` serves as its path. Errors are
those of the directory: plain `OSError`.
"""

from __future__ import annotations

import ctypes
import errno
import os
from dataclasses import dataclass
from pathlib import Path

ROOT = 1
"""FUSE's number for the root, whatever number its directory has."""

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class _Node:
    fd: int
    lookups: int = 0


class Backing:
    """Inodes of one directory tree on one file system."""

    def __init__(self, root: Path) -> None:
        fd = os.open(root, os.O_PATH | os.O_DIRECTORY)
        self._root = os.readlink(f"/proc/self/fd/{fd}")
        self._nodes = {ROOT: _Node(fd, lookups=1)}
        self._device = os.fstat(fd).st_dev
        self._alias = os.fstat(fd).st_ino

    def fd(self, inode: int) -> int:
        """The O_PATH descriptor of an inode that the kernel knows."""
        return self._nodes[inode].fd

    def path(self, inode: int) -> str:
        """A path that leads to the inode itself, wherever it was moved to."""
        return f"/proc/self/fd/{self.fd(inode)}"

    def peek(self, parent: int, name: bytes) -> os.stat_result:
        """Attributes of an entry, without counting it as known to the kernel."""
        return os.stat(name, dir_fd=self.fd(parent), follow_symlinks=False)

    def lookup(self, parent: int, name: bytes) -> os.stat_result:
        """Attributes of an entry, which the kernel knows from now on."""
        return self.adopt(os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=self.fd(parent)))

    def adopt(self, fd: int) -> os.stat_result:
        """Take over an O_PATH descriptor as one more lookup of its inode."""
        attributes = os.fstat(fd)
        if attributes.st_dev != self._device:
            # Two file systems can use one inode number twice.
            os.close(fd)
            raise OSError(errno.EXDEV, "another file system is mounted in the backing directory")
        inode = ROOT if attributes.st_ino == self._alias else attributes.st_ino
        node = self._nodes.setdefault(inode, _Node(fd))
        if node.fd != fd:
            os.close(fd)
        node.lookups += 1
        return attributes

    def forget(self, inode: int, lookups: int) -> None:
        """The kernel dropped so many lookups; at none left the inode is let go."""
        node = self._nodes[inode]
        node.lookups -= lookups
        if node.lookups <= 0 and inode != ROOT:
            os.close(self._nodes.pop(inode).fd)

    def place(self, fd: int, name: bytes | None = None) -> str:
        """The path below the root of an open descriptor, or of an entry of that directory."""
        whole = os.readlink(f"/proc/self/fd/{fd}").removesuffix(" (deleted)")
        relative = whole.removeprefix(self._root).lstrip("/")
        return relative if name is None else f"{relative}/{os.fsdecode(name)}".lstrip("/")


def rename(old: tuple[int, bytes], new: tuple[int, bytes], flags: int) -> None:
    """renameat2(2), which Python does not offer. `old` and `new`: directory descriptor and name."""
    if _libc.renameat2(*old, *new, flags) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
