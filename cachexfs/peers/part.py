"""A file that is being received: `parts/NAME.part`, kept over broken connections and crashes.

Nothing but the bytes themselves says which chunks are there: whoever opens a part that exists reads
it and believes the checksums. One thread at a time works on a part.
"""

from __future__ import annotations

import os
from pathlib import Path

from cachexfs.durability.checksum import CHUNK_BYTES, Chunk, chunk_count, chunk_crc, chunks, crc_at
from cachexfs.peers.messages import Replica
from cachexfs.ram import writeback
from cachexfs.ram.writing import write_all


class Part:
    """`missing` holds the numbers of the chunks that are not here yet."""

    def __init__(self, path: Path, replica: Replica) -> None:
        self.path = path
        self.name = path.name
        self.replica = replica
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(path, flags, 0o600)
        self.missing = set(range(chunk_count(replica.size_bytes)))

    @property
    def open(self) -> bool:
        """Whether the file is still open here."""
        return self._fd >= 0

    def resume(self) -> None:
        """Find what an earlier attempt left in the file. Raises `OSError`."""
        held_bytes = os.fstat(self._fd).st_size
        for chunk in chunks(min(held_bytes, self.replica.size_bytes)):
            if self._is_right(chunk, os.pread(self._fd, chunk.length, chunk.offset)):
                self.missing.discard(chunk.number)

    def believe(self, crcs: dict[int, bytes]) -> None:
        """Whole chunks with these checksums were written into the file by this process."""
        for index, crc in crcs.items():
            if index < self.replica.size_bytes // CHUNK_BYTES and crc == crc_at(
                self.replica.crcs, index
            ):
                self.missing.discard(index)

    def borrow(self, fd: int, crcs: bytes) -> None:
        """Copy the chunks that a file with these checksums has in common. Raises `OSError`."""
        for chunk in chunks(self.replica.size_bytes):
            same = crc_at(crcs, chunk.number) == crc_at(self.replica.crcs, chunk.number)
            if same and chunk.number in self.missing:
                self.write(chunk.number, memoryview(os.pread(fd, chunk.length, chunk.offset)))

    def write(self, index: int, data: memoryview) -> bool:
        """Store one chunk; False when it is not what the checksum promises. Raises `OSError`."""
        offset = index * CHUNK_BYTES
        length = min(CHUNK_BYTES, self.replica.size_bytes - offset)
        if not self._is_right(Chunk(index, offset, length), data):
            return False
        write_all(self._fd, offset, data)
        writeback.start(self._fd, offset, length)
        self.missing.discard(index)
        return True

    def missing_ranges(self) -> list[tuple[int, int]]:
        """The missing chunks as [first, last) ranges, in order."""
        ranges: list[tuple[int, int]] = []
        for index in sorted(self.missing):
            if ranges and ranges[-1][1] == index:
                ranges[-1] = (ranges[-1][0], index + 1)
            else:
                ranges.append((index, index + 1))
        return ranges

    def seal(self) -> None:
        """The whole content is on disk when this returns; the file is closed. Raises `OSError`."""
        os.ftruncate(self._fd, self.replica.size_bytes)
        os.fsync(self._fd)
        self.close()

    def close(self) -> None:
        """Leave the file as it is. May be called twice."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _is_right(self, chunk: Chunk, data: bytes | memoryview) -> bool:
        expected = crc_at(self.replica.crcs, chunk.number)
        return len(data) == chunk.length and chunk_crc(data) == expected
