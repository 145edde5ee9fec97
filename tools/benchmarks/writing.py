"""Writing as programs do: blocks of 1 MiB, one thread for each stream."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

BLOCK_BYTES = 1 << 20


def write(path: Path, size_bytes: int) -> None:
    """Create a file of that size, block by block, and close it."""
    block = os.urandom(BLOCK_BYTES)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        for _ in range(size_bytes // BLOCK_BYTES):
            os.write(fd, block)
    finally:
        os.close(fd)


def timed_streams(directory: Path, size_bytes: int, streams: int) -> float:
    """Seconds from the first open to the last close; the files are deleted after it."""
    paths = [directory / f"stream-{number}" for number in range(streams)]
    ready = threading.Barrier(streams + 1)

    def run(path: Path) -> None:
        block = os.urandom(BLOCK_BYTES)
        ready.wait()
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        for _ in range(size_bytes // streams // BLOCK_BYTES):
            os.write(fd, block)
        os.close(fd)

    threads = [threading.Thread(target=run, args=(path,)) for path in paths]
    for thread in threads:
        thread.start()
    ready.wait()
    begin = time.perf_counter()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - begin
    for path in paths:
        path.unlink()
    return took
