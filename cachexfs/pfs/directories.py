"""Descriptors of directories on the shared file system, found by identity, not by path.

An open descriptor follows its directory through every rename, by whichever node; so a directory
that has work pending is kept open. Runs in threads: every call may wait for the file system, which
may be silent when the mount begins: then its root is opened by whoever gets an answer first.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

from cachexfs.durability.actions import Slot
from cachexfs.ram.node import ROOT, Origin
from cachexfs.ram.tree import Tree

MAX_OPEN = 4096
"""Descriptors kept; the least recently used one is closed first and opened again by its path."""

_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Root(NamedTuple):
    """The source itself: a descriptor of it, and what it was when that was opened."""

    fd: int
    status: os.stat_result


def open_root(source: Path) -> Root:
    """Open the source. Raises OSError."""
    fd = os.open(source, _FLAGS)
    try:
        return Root(fd, os.fstat(fd))
    except BaseException:
        os.close(fd)
        raise


class Directories:
    """Directory descriptors by the mount's inode number. `root`: None while it is not open."""

    def __init__(self, source: Path, tree: Tree, root: Root | None = None) -> None:
        self._source = source
        self._tree = tree
        self._lock = threading.Lock()
        self._open: OrderedDict[int, int] = OrderedDict()
        self.root = root

    def ensure_root(self) -> Root:
        """The root, opened now if it is not. Raises OSError."""
        if self.root is None:
            opened = open_root(self._source)
            with self._lock:
                if self.root is None:
                    self.root = opened
                else:  # another thread was first
                    os.close(opened.fd)
        return self.root

    def close(self) -> None:
        """Close every descriptor."""
        with self._lock:
            for fd in (*self._open.values(), *([self.root.fd] if self.root else [])):
                os.close(fd)
            self._open.clear()

    def fd(self, ino: int) -> int:
        """A descriptor of its own for a directory; the caller closes it.

        Raises FileNotFoundError when the directory is not where it was, OSError otherwise.
        """
        if ino == ROOT:
            return os.dup(self.ensure_root().fd)
        with self._lock:
            if (kept := self._open.get(ino)) is not None:
                self._open.move_to_end(ino)
                return os.dup(kept)
        return self._reopen(ino)

    def forget(self, ino: int) -> None:
        """A directory is gone."""
        with self._lock:
            fd = self._open.pop(ino, None)
        if fd is not None:
            os.close(fd)

    def _reopen(self, ino: int) -> int:
        node = self._tree.nodes.get(ino)
        if node is None or node.place is None or node.origin is None:
            raise FileNotFoundError(errno.ENOENT, "the directory is not on the shared file system")
        try:
            fd = self._open_at(node.place, node.origin)
        except OSError:
            # Its rename may be done there already, and not noted here yet.
            if node.slot is None or node.slot == node.place:
                raise
            fd = self._open_at(node.slot, node.origin)
        self._keep(ino, os.dup(fd))
        return fd

    def _open_at(self, slot: Slot, origin: Origin) -> int:
        above = self.fd(slot.parent)
        try:
            fd = os.open(slot.name, _FLAGS, dir_fd=above)
        finally:
            os.close(above)
        status = os.fstat(fd)
        if Origin(status.st_dev, status.st_ino) != origin:
            os.close(fd)
            raise FileNotFoundError(errno.ENOENT, "another directory has taken its place")
        return fd

    def _keep(self, ino: int, fd: int) -> None:
        with self._lock:
            replaced = self._open.pop(ino, None)
            self._open[ino] = fd
            oldest = self._open.popitem(last=False)[1] if len(self._open) > MAX_OPEN else None
        for stale in (replaced, oldest):
            if stale is not None:
                os.close(stale)
