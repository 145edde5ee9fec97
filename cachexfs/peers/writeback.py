"""Start writing a range of a file to its disk without waiting, so that the later fsync is short."""

from __future__ import annotations

import ctypes
import os

_SYNC_FILE_RANGE_WRITE = 2
"""linux/fs.h"""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.sync_file_range.argtypes = [
    ctypes.c_int,
    ctypes.c_int64,
    ctypes.c_int64,
    ctypes.c_uint,
]


def start_writeback(fd: int, offset: int, length: int) -> None:
    """Best effort: a file system that cannot do it leaves all of the work to fsync."""
    _libc.sync_file_range(fd, offset, length, _SYNC_FILE_RANGE_WRITE)


def sync_directory(fd: int) -> None:
    """Make the names in a directory durable."""
    os.fsync(fd)
