"""Owner, mode, times and xattrs of what a path or a descriptor leads to."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple


class Changes(NamedTuple):
    """Attributes to set; None leaves one as it is. Times in nanoseconds."""

    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    atime_ns: int | None = None
    mtime_ns: int | None = None


def apply(path: str | int, changes: Changes) -> None:
    """Set attributes. Raises OSError."""
    if changes.uid is not None or changes.gid is not None:
        os.chown(path, _or_keep(changes.uid), _or_keep(changes.gid))
    if changes.mode is not None:  # after chown, which clears set-ID bits
        os.chmod(path, changes.mode & 0o7777)
    if changes.atime_ns is not None or changes.mtime_ns is not None:
        now = os.stat(path)
        atime = now.st_atime_ns if changes.atime_ns is None else changes.atime_ns
        mtime = now.st_mtime_ns if changes.mtime_ns is None else changes.mtime_ns
        os.utime(path, ns=(atime, mtime))


def like(status: os.stat_result) -> Changes:
    """The changes that make a file's attributes like `status`. Only root can give files away."""
    changes = Changes(mode=status.st_mode, atime_ns=status.st_atime_ns, mtime_ns=status.st_mtime_ns)
    return owned(changes, status.st_uid, status.st_gid)


def owned(changes: Changes, uid: int, gid: int) -> Changes:
    """The changes, with an owner where one can be given: only root can.

    Set-ID bits go where their owner cannot be given: they would lend out somebody else's rights.
    """
    if os.geteuid() == 0:
        return changes._replace(uid=uid, gid=gid)
    mode = changes.mode
    if mode is not None:
        mode &= ~stat.S_ISUID if uid != os.geteuid() else ~0
        mode &= ~stat.S_ISGID if gid != os.getegid() and not stat.S_ISDIR(mode) else ~0
    return changes._replace(mode=mode)


def read_xattrs(path: str | int) -> dict[bytes, bytes]:
    """All extended attributes; empty where there are none to be had."""
    try:
        names = [os.fsencode(name) for name in os.listxattr(path)]
        return {name: os.getxattr(path, name) for name in names}
    except OSError:
        return {}


def _or_keep(number: int | None) -> int:
    return -1 if number is None else number
