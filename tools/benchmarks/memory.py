"""Touched memory: what is measured is copying, not how this machine comes by its pages.

A virtual machine gets its memory page by page when it is first used, and may give back within
seconds what it frees (virtio-balloon, free page reporting). A page that has to be had again costs
several times what copying into it costs, and falls on whoever happens to need it.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

_MADV_POPULATE_WRITE = 23
"""linux/mman.h, Linux 5.14: fault pages in as a write would."""


def settle(needed_bytes: int) -> None:
    """Write back what is left from before, and have so much memory free that was just in use."""
    os.sync()
    touch(min(needed_bytes, available_bytes() // 2))


def touch(size_bytes: int) -> None:
    """Use so much memory, and give it back."""
    with mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as pages:
        pages.madvise(mmap.MADV_HUGEPAGE)
        try:
            pages.madvise(_MADV_POPULATE_WRITE)
        except OSError:
            for offset in range(0, size_bytes, mmap.PAGESIZE):
                pages[offset] = 1


def available_bytes() -> int:
    """Memory that can be used without swapping (MemAvailable of /proc/meminfo)."""
    with Path("/proc/meminfo").open(encoding="ascii") as lines:
        fields = dict(line.split(":", 1) for line in lines)
    return int(fields["MemAvailable"].split()[0]) << 10
