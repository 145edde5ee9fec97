"""The FUSE session: mount, serve, unmount. pyfuse3 allows one in a process.

This is the seam for the kernel link: what answers the kernel today is libfuse's own loop.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pyfuse3

from cachexfs.errors import CacheXError
from cachexfs.mount.operations import Operations

MAX_TASKS = 4096
"""Requests in hand at once. A waiting fsync holds one, so it must exceed the writers of a node."""


def open_session(operations: Operations, source: str, mountpoint: str, options: set[str]) -> None:
    """Mount. Raises `CacheXError`."""
    chosen = set(pyfuse3.default_options) | {f"fsname={source}", "subtype=cachexfs"} | options
    if os.geteuid() == 0:
        chosen.add("allow_other")
    try:
        pyfuse3.init(operations, mountpoint, chosen)
    except RuntimeError as error:
        raise CacheXError(f"cannot mount on {mountpoint}: {error}") from None


async def serve(ready: Callable[[], None]) -> None:
    """Answer the kernel until the file system is unmounted, or `stop` is called.

    The mount is in place before this is called, so programs may be told at once.
    """
    ready()
    await pyfuse3.main(min_tasks=1, max_tasks=MAX_TASKS)


def stop() -> None:
    """Let `serve` return; the mount itself stays until `close_session`."""
    pyfuse3.terminate()


def close_session(*, unmount: bool) -> None:
    """End the session, with or without unmounting."""
    pyfuse3.close(unmount=unmount)
