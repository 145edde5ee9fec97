"""Mounting a private tmpfs, and telling what file system a directory is on."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

MS_NOSUID, MS_NODEV = 2, 4
"""From linux/mount.h."""

MNT_DETACH = 2
"""From linux/fs.h: out of the tree now, gone when the last open file is."""


def mount(target: Path, limit_bytes: int, *, huge_pages: bool) -> str:
    """Mount a tmpfs of `limit_bytes` on `target`; returns the huge-page mode that it got.

    `within_size` gives huge pages to large files and 4 KiB to small ones; a kernel that was built
    without them refuses the option, and then plain pages serve. Raises OSError.
    """
    base = f"size={limit_bytes},mode=0700"
    for mode in ("within_size", "never") if huge_pages else ("never",):
        options = base if mode == "never" else f"{base},huge={mode}"
        try:
            _mount(target, options)
        except OSError:
            if mode == "never":
                raise
        else:
            return mode
    raise AssertionError("unreachable: the last mode returns or raises")


def unmount(target: Path) -> None:
    """Unmount; the pages are freed when the last open file is closed. Raises OSError."""
    if _libc().umount2(os.fsencode(target), MNT_DETACH) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(target))


def file_system_of(path: Path) -> str:
    """The type of the file system that `path` is on, as /proc/self/mountinfo names it."""
    return _mount_of(path)[0]


def has_huge_pages(path: Path) -> bool:
    """Whether the tmpfs that `path` is on gives huge pages to files while they grow."""
    options = _mount_of(path)[1].split(",")
    return any(option in options for option in ("huge=always", "huge=within_size"))


def _mount_of(path: Path) -> tuple[str, str]:
    """Type and options of the file system that `path` is on."""
    device = path.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if fields[2] == wanted:
            dash = fields.index("-")
            return fields[dash + 1], fields[dash + 3]
    return "unknown", ""


def _mount(target: Path, options: str, flags: int = MS_NOSUID | MS_NODEV) -> None:
    name = b"cachexfs-ram"
    args = (name, os.fsencode(target), b"tmpfs", flags, options.encode())
    if _libc().mount(*args) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(target))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
