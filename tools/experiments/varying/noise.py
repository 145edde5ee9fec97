"""Another host's writers: they write into the shared file system, as many as are asked for.

    python -m tools.experiments.varying.noise CORE DIRECTORY WRITERS

A line of input is the number of writers that write from then on.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from pathlib import Path

BLOCK_BYTES = 1 << 20
FILE_BLOCKS = 128
"""A file is written over and over again, so that no disk fills up."""


class _Writer(threading.Thread):
    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.may_write = threading.Event()
        self._path = path

    def run(self) -> None:
        block = os.urandom(BLOCK_BYTES)
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o644)
        number = 0
        while True:
            self.may_write.wait()
            with contextlib.suppress(OSError):  # the shared file system may give up in a stall
                os.pwrite(fd, block, number % FILE_BLOCKS * BLOCK_BYTES)
            number += 1


def main(core: int, directory: Path, count: int) -> None:
    """Write until the input ends."""
    os.sched_setaffinity(0, {core})
    writers = [_Writer(directory / f"noise-{number}") for number in range(count)]
    for writer in writers:
        writer.start()
    for line in sys.stdin:
        for number, writer in enumerate(writers):
            if number < int(line):
                writer.may_write.set()
            else:
                writer.may_write.clear()
    os._exit(0)  # whoever waits in a write is not waited for


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
