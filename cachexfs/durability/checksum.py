"""A file's checksum: one CRC-32C for each chunk of 4 MiB.

A list of chunk checksums, rather than one digest of the whole, lets a broken transfer go on where
it stopped, lets a reader check the range it wants, and names the chunk that is damaged. CRC-32C
(Castagnoli, RFC 3720 B.4) is what the processors compute in hardware.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

CHUNK_BYTES = 4 << 20
_CRC_BYTES = 4


class Chunk(NamedTuple):
    """A range of a file: its number, where it begins and how long it is, in bytes."""

    number: int
    offset: int
    length: int


def chunks(size_bytes: int) -> Iterator[Chunk]:
    """The chunks of a file of `size_bytes`; none for an empty file."""
    for index, offset in enumerate(range(0, size_bytes, CHUNK_BYTES)):
        yield Chunk(index, offset, min(CHUNK_BYTES, size_bytes - offset))


def chunk_count(size_bytes: int) -> int:
    """How many chunks a file of `size_bytes` has."""
    return -(-size_bytes // CHUNK_BYTES)


def chunk_crc(data: bytes | bytearray | memoryview) -> bytes:
    """The checksum of one chunk: 4 bytes, big-endian."""
    return crc32c(data).to_bytes(_CRC_BYTES, "big")


def checksum(data: bytes | bytearray | memoryview) -> bytes:
    """The checksums of a whole file's content, 4 bytes per chunk, in order."""
    view = memoryview(data)
    return b"".join(chunk_crc(view[c.offset : c.offset + c.length]) for c in chunks(len(view)))


def crc_at(crcs: bytes, index: int) -> bytes:
    """The checksum of chunk `index` out of a file's `crcs`."""
    return crcs[index * _CRC_BYTES : (index + 1) * _CRC_BYTES]


def crc_count(crcs: bytes) -> int:
    """How many chunks these are the checksums of."""
    return len(crcs) // _CRC_BYTES


def differing(expected: bytes, found: bytes) -> list[int]:
    """Numbers of the chunks whose checksum in `found` is missing or not as `expected`."""
    return [
        index
        for index in range(len(expected) // _CRC_BYTES)
        if crc_at(expected, index) != crc_at(found, index)
    ]
