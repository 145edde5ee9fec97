"""Directories that programs save into, known well enough to go on without the source.

A save begins with questions to the source: the attributes of the directories of the path, and that
the name is not there. Where the source is busy each takes as long as its queue is, and the program
waits for what is known already. So, for making a file alone, an answer is waited for only briefly;
then what was seen stands in, if that was not long ago. To have it at hand, such directories are
looked at again from time to time, for a while after a file was made there.

What can go wrong: somebody who is no member has made that very name on the source within the last
minute, and does not know that a program here writes it too. Then the file that was made here takes
its place, as a rename would, instead of its content alone. Pure: `now_s` comes from outside.
"""

from __future__ import annotations

BRIEFLY_S = 0.002
"""A source that is not busy answers sooner: a local disk in tenths of milliseconds, a file system
of a cluster in about one."""
BUSY_S = 1.0
"""A source that has not answered briefly is not asked again for that long, if it need not be."""
FRESH_S = 60.0
"""How old what was seen may be: NFS clients believe a directory for as long (acdirmax, nfs(5))."""
LOOK_EVERY_S = 15.0
KEPT_S = 3600.0
"""After a file was made: checkpoints are minutes apart."""
AT_MOST = 64


class Familiar:
    """By inode numbers of directories: when they were seen whole, when a file was made there."""

    def __init__(self) -> None:
        self._seen_s: dict[int, float] = {}
        self._used_s: dict[int, float] = {}
        self._busy_until_s = 0.0

    def saw(self, ino: int, now_s: float) -> None:
        """All names of a directory were asked for then."""
        if ino in self._used_s:
            self._seen_s[ino] = now_s

    def used(self, ino: int, now_s: float) -> bool:
        """A file is made there; returns whether the directory was not known for that before."""
        is_new = ino not in self._used_s
        if is_new and len(self._used_s) >= AT_MOST:
            self.forget(min(self._used_s, key=self._used_s.__getitem__))
        self._used_s[ino] = now_s
        return is_new

    def forget(self, ino: int) -> None:
        """It is gone, or nothing is made there any more."""
        self._used_s.pop(ino, None)
        self._seen_s.pop(ino, None)

    def is_fresh(self, ino: int, now_s: float) -> bool:
        """Whether what was seen of a directory can stand in."""
        seen_s = self._seen_s.get(ino)
        return seen_s is not None and now_s - seen_s <= FRESH_S

    def to_look_at(self, now_s: float) -> list[int]:
        """The directories to be looked at again; those of which nothing is made are forgotten."""
        for ino in [ino for ino, used_s in self._used_s.items() if now_s - used_s > KEPT_S]:
            self.forget(ino)
        return list(self._used_s)

    def patience_s(self, now_s: float) -> float:
        """How long an answer is to be waited for."""
        return 0.0 if now_s < self._busy_until_s else BRIEFLY_S

    def was_busy(self, now_s: float) -> None:
        """The source has not answered so soon."""
        self._busy_until_s = now_s + BUSY_S
