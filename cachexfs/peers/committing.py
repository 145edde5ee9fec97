"""A holder puts a replica into its place on the shared file system. Everything here blocks.

Nothing half is ever visible: the content goes to a hidden name, each chunk is checked on its way,
and the rename comes last, after a look whether the claim is still ours.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from cachexfs.claims import Claim
from cachexfs.durability.checksum import CHUNK_BYTES, chunk_count, chunk_crc, crc_at
from cachexfs.peers import paths
from cachexfs.peers.messages import Replica
from cachexfs.ram.attributes import Changes, apply, owned
from cachexfs.ram.writing import write_all

Result = Literal["committed", "there", "superseded", "overtaken", "no directory", "damaged"]
"""What came of it. All but "overtaken" are final."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def commit(source: Path, replica: Replica, content: int, claim: Claim, counts: bool) -> Result:
    """Put a replica, whose content is open as `content`, in place. Raises OSError.

    `counts`: it is known to be the last close of its name. Where that is not known, a file that is
    there and is of a later time counts: but times of files are those of the clocks of their nodes,
    or what a program has made of them.
    """
    *above, name = paths.check(replica.path).split(b"/")
    try:
        with _parent(source, above, replica.parent) as parent:
            if (result := _look(parent, name, replica, counts)) is not None:
                return result
            return _put(parent, name, replica, content, claim)
    except FileNotFoundError:
        return "no directory"


def _look(parent: int, name: bytes, replica: Replica, counts: bool) -> Result | None:
    """What the name says already; None when the replica is to be put there."""
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    is_later = found.st_mtime_ns > replica.mtime_ns and not counts
    if stat.S_ISDIR(found.st_mode) or is_later:
        return "superseded"
    is_same = (found.st_size, found.st_mtime_ns) == (replica.size_bytes, replica.mtime_ns)
    return "there" if is_same else None


def _put(parent: int, name: bytes, replica: Replica, content: int, claim: Claim) -> Result:
    hidden = b".cachexfs-adopted-" + secrets.token_hex(8).encode() + b".tmp"
    fd = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=parent)
    try:
        if not _copy(content, fd, replica, claim):
            return "damaged"
        _dress(fd, replica)
        os.fsync(fd)
        if not claim.is_ours():
            return "overtaken"
        os.rename(hidden, name, src_dir_fd=parent, dst_dir_fd=parent)
        os.fsync(parent)
        return "committed"
    finally:
        os.close(fd)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(hidden, dir_fd=parent)


def _copy(content: int, target: int, replica: Replica, claim: Claim) -> bool:
    os.ftruncate(target, replica.size_bytes)
    for index in range(chunk_count(replica.size_bytes)):
        data = os.pread(content, CHUNK_BYTES, index * CHUNK_BYTES)
        if chunk_crc(data) != crc_at(replica.crcs, index):
            return False
        write_all(target, index * CHUNK_BYTES, data)
        if index % 16 == 15:
            claim.is_ours()  # it lives while work goes on
    return True


def _dress(fd: int, replica: Replica) -> None:
    for name, value in replica.xattrs.items():
        with contextlib.suppress(OSError):
            os.setxattr(fd, name, value)
    changes = Changes(replica.mode, atime_ns=replica.atime_ns, mtime_ns=replica.mtime_ns)
    apply(fd, owned(changes, replica.uid, replica.gid))


@contextlib.contextmanager
def _parent(source: Path, above: list[bytes], number: int) -> Iterator[int]:
    """The directory that a replica belongs in. Raises FileNotFoundError when it is gone.

    `number` is its inode number there; 0: the shared file system did not have it yet, so it is made
    where it is missing. One that another node has renamed is looked for beside where it was.
    """
    fd = os.open(source, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for depth, name in enumerate(above):
            wanted = number if depth == len(above) - 1 else 0
            below = _below(fd, name, wanted, make=not number)
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)


def _below(fd: int, name: bytes, number: int, *, make: bool) -> int:
    if make:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=fd)
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        found = os.open(name, _DIRECTORY, dir_fd=fd)
        if not number or os.fstat(found).st_ino == number:
            return found
        os.close(found)
    with os.scandir(fd) as entries:
        for entry in entries:
            if number and entry.inode() == number and entry.is_dir(follow_symlinks=False):
                return os.open(entry.name, _DIRECTORY, dir_fd=fd)
    raise FileNotFoundError(errno.ENOENT, "the directory is gone")
