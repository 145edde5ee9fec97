"""What the source's own directory is: known from the last time, while it does not answer.

Its inode number there is the name by which other nodes know it; its attributes stand in for it, so
that what lies below can be reached.
"""

from __future__ import annotations

import stat
import time

from cachexfs.pfs.directories import Directories
from cachexfs.ram.journal import Journal
from cachexfs.ram.node import keep_status
from cachexfs.ram.tree import Tree

_KEY = "root"
"""In the journal: inode number, mode, uid and gid."""
_UNKNOWN = (0, stat.S_IFDIR | 0o755, 0, 0)


class Landmark:
    """Of one source. `note` when it has been reached."""

    def __init__(self, directories: Directories, journal: Journal, tree: Tree) -> None:
        self._directories = directories
        self._journal = journal
        self._root = tree.root
        if directories.root is not None:
            self.note()
        else:
            self._remember()

    def ino(self) -> int:
        """The source's inode number; 0 when it was never reached."""
        root = self._directories.root
        return root.status.st_ino if root is not None else self._remembered()[0]

    def note(self) -> None:
        """Keep what it is for the next daemon."""
        root = self._directories.root
        if root is not None:
            status = root.status
            keep_status(self._root, status)
            known = (status.st_ino, status.st_mode, status.st_uid, status.st_gid)
            self._journal.set(_KEY, " ".join(map(str, known)))

    def _remember(self) -> None:
        _, self._root.mode, self._root.uid, self._root.gid = self._remembered()
        now_ns = time.time_ns()
        self._root.atime_ns = self._root.mtime_ns = self._root.ctime_ns = now_ns

    def _remembered(self) -> tuple[int, int, int, int]:
        known = self._journal.get(_KEY)
        if known is None:
            return _UNKNOWN
        ino, mode, uid, gid = map(int, known.split())
        return ino, mode, uid, gid
