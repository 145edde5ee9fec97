"""How many bytes are still to be moved of those that are under way. Pure.

Of what is under way some has been moved already: a file that begins behind another one of 10 GB
waits for what is left of it and not for all. How much that is nobody is told; but how fast bytes
went lately is known from the files that ended.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

_FORGETS = 0.7
"""What an older file still counts when another has ended, in the rate."""

_REMEMBERED = 64
"""Begins: of more that came during one file the last are enough."""


@dataclass
class UnderWay:
    """Of one phase and one destination. Times on one clock that does not jump."""

    size_bytes: int = 0
    _since_s: float = 0.0
    """From when on nothing has been counted as moved: the last end, or the begin after a pause."""
    _moved: float = 0.0
    _busy_s: float = 0.0
    _begins: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    def begin(self, size_bytes: int, now_s: float) -> None:
        """A file begins."""
        if self.size_bytes == 0:
            self._since_s = now_s
        self.size_bytes += size_bytes
        self._begins.append((now_s, size_bytes))

    def end(self, size_bytes: int, now_s: float) -> None:
        """One ended; between two ends so many bytes were moved."""
        self._moved = _FORGETS * self._moved + size_bytes
        self._busy_s = _FORGETS * self._busy_s + max(now_s - self._since_s, 0.0)
        self._since_s = now_s
        self.size_bytes -= size_bytes

    def give_up(self, size_bytes: int) -> None:
        """One is not wanted any more."""
        self.size_bytes -= size_bytes

    def left_bytes(self, now_s: float) -> int:
        """What is still to be moved, as far as is known; all of it before any file has ended."""
        if self._busy_s <= 0.0:
            return self.size_bytes
        moved = self._moved / self._busy_s * (now_s - self._since_s)
        return max(0, round(self.size_bytes - moved))

    def came_during(self, size_bytes: int, begin_s: float, end_s: float) -> int:
        """Bytes that began after a file of this size and before its end.

        Each as far as the two can have shared: a file that came when half was moved took no more
        from it than that half.
        """
        if end_s <= begin_s:
            return 0
        rate = size_bytes / (end_s - begin_s)
        came = [(at_s, size) for at_s, size in self._begins if begin_s < at_s < end_s]
        return round(sum(min(size, rate * (end_s - at_s)) for at_s, size in came))
