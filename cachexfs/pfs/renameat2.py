"""renameat2(2), which Python's `os` does not offer."""

from __future__ import annotations

import ctypes
import os


def rename(old_dir: int, old: bytes, new_dir: int, new: bytes, flags: int = 0) -> None:
    """Rename below directory descriptors. Raises OSError.

    Plain renames go through rename(2), which every file system has; the flags need renameat2(2),
    and a file system without it answers EINVAL.
    """
    if flags == 0:
        os.rename(old, new, src_dir_fd=old_dir, dst_dir_fd=new_dir)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(old_dir, old, new_dir, new, flags) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
