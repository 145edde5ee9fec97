"""From the RAM tier to the shared file system: flush to a hidden name, check, commit in place.

Runs in threads; every call may wait for the file system. Whatever is interrupted leaves a hidden
file at most, which the next try replaces and the removal of the directory sweeps away.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from cachexfs.durability.checksum import CHUNK_BYTES, chunk_crc
from cachexfs.ram import writeback
from cachexfs.ram.attributes import Changes, apply, like, read_xattrs
from cachexfs.ram.node import Origin, Signature
from cachexfs.ram.tier import data_ranges
from cachexfs.ram.writing import write_all

log = logging.getLogger(__name__)


class Committed(NamedTuple):
    """What is on the shared file system now."""

    origin: Origin
    signature: Signature
    status: os.stat_result


class Stopped(Exception):
    """The copy is not wanted any more."""


def flush(
    blob: Path,
    parent: int,
    temp: bytes,
    progress: Callable[[int], bool],
    *,
    sync: bool = True,
) -> None:
    """Copy a blob to a hidden name, fsync it, and check what reads back against what was read.

    `progress` is told the bytes written so far and answers whether to go on. Holes stay holes.
    Without `sync` the fsync is left to `commit`, which does one anyway. Raises OSError, EIO for
    a copy that reads back different, and `Stopped`.
    """
    with blob.open("rb", buffering=0) as source, _temporary(parent, temp) as target:
        size = os.fstat(source.fileno()).st_size
        buffer = memoryview(bytearray(min(size, CHUNK_BYTES)))
        os.ftruncate(target, size)
        written = []
        for chunk in _data_chunks(source.fileno(), size):
            written.append((chunk, _copy_chunk(source.fileno(), target, chunk, buffer)))
            if not progress(chunk.end):
                raise Stopped
        if sync:
            os.fsync(target)
        for chunk, crc in written:
            if chunk_crc(_read(target, chunk, buffer)) != crc:
                raise OSError(errno.EIO, "what was written reads back different")


def commit(
    parent: int,
    temp: bytes,
    name: bytes,
    blob: Path,
    xattrs: dict[bytes, bytes],
    check: Callable[[], None] = lambda: None,
) -> Committed:
    """Give the flushed file its attributes, put it in place and make the place durable.

    `check` raises when it must not be put there after all.
    """
    fd = os.open(temp, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        dress(fd, like(blob.stat()), xattrs)
        os.fsync(fd)
        status = os.fstat(fd)
    finally:
        os.close(fd)
    check()
    os.rename(temp, name, src_dir_fd=parent, dst_dir_fd=parent)
    sync_directory(parent)
    return committed_as(status)


def dress(target: str | int, changes: Changes, xattrs: dict[bytes, bytes]) -> None:
    """Give a file its owner, mode, times and xattrs, as far as the file system has such things.

    A share that maps root to nobody, or one without xattrs, still keeps the bytes safe.
    """
    with _unless_unsupported():
        apply(target, Changes(uid=changes.uid, gid=changes.gid))
    apply(target, Changes(changes.mode, None, None, changes.atime_ns, changes.mtime_ns))
    for key in read_xattrs(target).keys() - xattrs.keys():
        if key.startswith(b"user."):
            os.removexattr(target, key)
    for key, value in xattrs.items():
        with _unless_unsupported():
            os.setxattr(target, key, value)


@contextlib.contextmanager
def _unless_unsupported() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
        log.warning("the shared file system does not keep an attribute: %s", error)


def committed_as(status: os.stat_result) -> Committed:
    """The identity and signature in a status."""
    origin = Origin(status.st_dev, status.st_ino)
    return Committed(origin, Signature(status.st_size, status.st_mtime_ns), status)


def sync_directory(parent: int) -> None:
    """Make a directory's names durable. Some file systems have no such call: then they are."""
    fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
    finally:
        os.close(fd)


@contextlib.contextmanager
def _temporary(parent: int, temp: bytes) -> Iterator[int]:
    """A new hidden file, readable and writable; removed again if the block fails."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temp, dir_fd=parent)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    fd = os.open(temp, flags, 0o600, dir_fd=parent)
    try:
        yield fd
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temp, dir_fd=parent)
        raise
    finally:
        os.close(fd)


class _Range(NamedTuple):
    begin: int
    end: int


def _data_chunks(fd: int, size: int) -> Iterator[_Range]:
    """The data of a file, without its holes, in pieces of at most a chunk."""
    for begin, end in data_ranges(fd, size):
        for offset in range(begin, end, CHUNK_BYTES):
            yield _Range(offset, min(offset + CHUNK_BYTES, end))


def _copy_chunk(source: int, target: int, chunk: _Range, buffer: memoryview) -> bytes:
    """Copy a piece and start it on its way to the disk; returns its checksum.

    Read into memory of our own, not mapped: a program may truncate the file meanwhile, and touching
    a page that is gone would end the process (SIGBUS).
    """
    part = _read(source, chunk, buffer)
    write_all(target, chunk.begin, part)
    writeback.start(target, chunk.begin, len(part))
    return chunk_crc(part)


def _read(fd: int, chunk: _Range, buffer: memoryview) -> memoryview:
    wanted = chunk.end - chunk.begin
    done = 0
    while done < wanted:
        got = os.preadv(fd, [buffer[done:wanted]], chunk.begin + done)
        if got == 0:
            raise OSError(errno.EIO, "the file became shorter while it was copied")
        done += got
    return buffer[:wanted]
