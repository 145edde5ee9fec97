"""Following a writer: which chunks of a file that is still being written can be sent ahead. Pure.

A sequential writer has left a chunk behind for good when data goes on well past its end. That is a
guess; the checksums at close tell whether it was right. A chunk is sent ahead once at most, so a
writer that goes back costs at most one more transfer of what it changed, and one that is found to
go back often is not followed any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from cachexfs.durability.checksum import CHUNK_BYTES

LAG_BYTES = 2 << 20
"""Stay so far behind the end of the data: a huge page of a tmpfs counts as data as a whole as soon
as its first byte is written."""
CHANGED_AT_MOST = 4
"""Chunks that were sent ahead and have changed after all: a header, an index, a trailer."""
FRESH_STARTS = 2
"""How often a file may shrink below what was sent before it is given up."""


class Verdict(Enum):
    """What a look at a file leads to."""

    FOLLOW = "follow"
    AFRESH = "afresh"
    """What was sent is not the file any more."""
    STOP = "stop"


@dataclass
class Chase:
    """One file. Chunks [first, complete) can be sent; those before `first` are at the partners."""

    blob: int
    first: int = 0
    complete: int = 0
    fresh_starts: int = 0

    @property
    def seek_from(self) -> int:
        """Where to look for the end of the data, in bytes."""
        return max(self.first, self.complete) * CHUNK_BYTES

    def look(self, blob: int, size_bytes: int, data_end_bytes: int) -> Verdict:
        """The file as it is now: its data goes on without a hole up to `data_end_bytes`."""
        if blob != self.blob or size_bytes < self.seek_from:
            return self._afresh(blob)
        end = min(size_bytes, data_end_bytes) - LAG_BYTES
        self.complete = max(self.complete, self.first, end // CHUNK_BYTES)
        return Verdict.FOLLOW

    def _afresh(self, blob: int) -> Verdict:
        self.fresh_starts += 1
        self.blob, self.first, self.complete = blob, 0, 0
        return Verdict.STOP if self.fresh_starts > FRESH_STARTS else Verdict.AFRESH

    def offered(self, chunks: int) -> None:
        """The partners get so many by an offer; what is sent ahead begins with the last of them.

        That one need not have been whole.
        """
        self.first = self.complete = max(0, chunks - 1)


def changed(sent: range, needed: list[tuple[int, int]]) -> int:
    """How many chunks of those sent ahead are needed again."""
    return sum(max(0, min(last, sent.stop) - max(first, sent.start)) for first, last in needed)


def is_steady(chunks_changed: int) -> bool:
    """Whether a writer that changed so many chunks behind its back is worth following again."""
    return chunks_changed <= CHANGED_AT_MOST
