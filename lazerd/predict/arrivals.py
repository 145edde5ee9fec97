"""When the next job comes: a hazard over the last gaps between arrivals, not a mean.

Arrivals come in bursts (the gaps of Philly have a coefficient of variation of 15), so the time
since the last arrival says most about the next: a second after one, another is likely; an hour
after, it is not. The gaps that were longer than the present one are the evidence.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque

REMEMBERED = 128
"""Gaps that count: some bursts and the pauses between them, and not last week's."""


class Arrivals:
    """The last gaps between arrivals; arrivals of one instant are one."""

    def __init__(self) -> None:
        self._last_s: float | None = None
        self._gaps: deque[float] = deque()
        self._sorted: list[float] = []

    def observe(self, now_s: float) -> None:
        """Somebody arrived."""
        if self._last_s is not None and now_s > self._last_s:
            self._remember(now_s - self._last_s)
        self._last_s = now_s

    def within(self, horizon_s: float, now_s: float) -> float:
        """The probability that somebody comes within `horizon_s` seconds from now."""
        if self._last_s is None or not self._sorted:
            return 0.0
        since_s = now_s - self._last_s
        longer = len(self._sorted) - bisect_right(self._sorted, since_s)
        if longer == 0:
            return 0.0
        still = len(self._sorted) - bisect_right(self._sorted, since_s + horizon_s)
        return 1.0 - still / longer

    def _remember(self, gap_s: float) -> None:
        self._gaps.append(gap_s)
        insort(self._sorted, gap_s)
        if len(self._gaps) > REMEMBERED:
            oldest = self._gaps.popleft()
            del self._sorted[bisect_right(self._sorted, oldest) - 1]
