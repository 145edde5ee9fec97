"""Writing and reading as programs do: blocks of 1 MiB, one thread for each stream."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

BLOCK_BYTES = 1 << 20


def write(path: Path, size_bytes: int) -> None:
    """Create a file of that size, block by block, and close it."""
    _write(path, size_bytes, memoryview(os.urandom(BLOCK_BYTES)))


def paths_in(directory: Path, streams: int) -> list[Path]:
    """A file for each stream."""
    return [directory / f"stream-{number}" for number in range(streams)]


def timed_writes(paths: list[Path], size_bytes: int) -> float:
    """Seconds from the first open to the last close; `size_bytes` in all."""
    return _timed(_write, paths, size_bytes // len(paths))


def timed_reads(paths: list[Path], size_bytes: int) -> float:
    """Seconds from the first open to the last close; `size_bytes` in all."""
    return _timed(_read, paths, size_bytes // len(paths))


def _timed(
    work: Callable[[Path, int, memoryview], None], paths: list[Path], size_bytes: int
) -> float:
    ready = threading.Barrier(len(paths) + 1)

    def run(path: Path) -> None:
        block = memoryview(bytearray(os.urandom(BLOCK_BYTES)))
        ready.wait()
        work(path, size_bytes, block)

    threads = [threading.Thread(target=run, args=(path,)) for path in paths]
    for thread in threads:
        thread.start()
    ready.wait()
    begin = time.perf_counter()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begin


def _write(path: Path, size_bytes: int, block: memoryview) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        for _ in range(size_bytes // BLOCK_BYTES):
            os.write(fd, block)
    finally:
        os.close(fd)


def _read(path: Path, size_bytes: int, block: memoryview) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        for _ in range(size_bytes // BLOCK_BYTES):
            os.readv(fd, [block])
    finally:
        os.close(fd)
