"""The chunk checksums of blobs, computed in a thread."""

from __future__ import annotations

import os
from pathlib import Path

from cachexfs.durability.checksum import CHUNK_BYTES, chunk_crc, chunks


def of_file(path: Path) -> tuple[int, bytes]:
    """Size in bytes and chunk checksums of a file.

    Read into a buffer, not mapped: a program may truncate the file meanwhile, and touching a page
    that is gone would end the process. Raises OSError; a file that shrinks counts as it was read.
    """
    buffer = memoryview(bytearray(CHUNK_BYTES))
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        crcs = bytearray()
        for chunk in chunks(size):
            got = os.preadv(file.fileno(), [buffer[: chunk.length]], chunk.offset)
            crcs += chunk_crc(buffer[:got])
    return size, bytes(crcs)
