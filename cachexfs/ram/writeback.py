"""sync_file_range(2): start pages on their way to the disk while others are being copied."""

from __future__ import annotations

import ctypes

_WRITE = 2
"""SYNC_FILE_RANGE_WRITE of linux/fs.h: start, do not wait."""

_libc = ctypes.CDLL(None)
_libc.sync_file_range.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]


def start(fd: int, offset: int, length: int) -> None:
    """Start writeback of a range. A hint: where it is not known, fsync does all the work later."""
    _libc.sync_file_range(fd, offset, length, _WRITE)
