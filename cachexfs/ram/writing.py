"""pwrite(2) until all of it is written: it may take less at a time."""

from __future__ import annotations

import os


def write_all(fd: int, offset: int, data: bytes | memoryview) -> None:
    """Write all of `data` at `offset`. Raises OSError."""
    view, done = memoryview(data), 0
    while done < len(view):
        done += os.pwrite(fd, view[done:], offset + done)
