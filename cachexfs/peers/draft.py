"""Chunks that came before their offer: `parts/NAME.draft`, for the life of one connection.

A sender follows a file that is still being written. What it sends ahead lies here until the file's
offer says, by its checksums, which of these chunks it can use; or until nobody wants them. A draft
is a guess: any of its bytes may be dropped, so it is the first to go when room is needed.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from cachexfs.durability.checksum import CHUNK_BYTES, chunk_crc
from cachexfs.ram import writeback
from cachexfs.ram.writing import write_all

SUFFIX = ".draft"


class Draft:
    """`crcs` holds the checksum of each chunk that is here, by its number. Raises `OSError`."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / (secrets.token_hex(16) + SUFFIX)
        self.crcs: dict[int, bytes] = {}
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._fd = os.open(self.path, flags, 0o600)

    @property
    def name(self) -> str:
        """Its file name."""
        return self.path.name

    @property
    def size_bytes(self) -> int:
        """The bytes that arrived."""
        return len(self.crcs) * CHUNK_BYTES

    @property
    def is_there(self) -> bool:
        """Whether the file was not taken for room."""
        return self._fd >= 0 and os.fstat(self._fd).st_nlink > 0

    def write(self, index: int, data: memoryview) -> None:
        """Keep one whole chunk."""
        offset = index * CHUNK_BYTES
        write_all(self._fd, offset, data)
        writeback.start(self._fd, offset, len(data))
        self.crcs[index] = chunk_crc(data)

    def close(self) -> None:
        """Leave the file as it is. May be called twice."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
