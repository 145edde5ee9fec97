"""The time that nodes share: what one of them does after it has heard of another's is later.

Of two changes of a name the later one counts, at the homes, at the holders and in a recovery; and
wall clocks may differ by anything. So a node that hears of a later time than its own goes on from
there, and all come to the clock that is furthest ahead (hybrid logical clocks, Kulkarni and others
2014; here the distance is kept and not the time, so that an age is still an age). What it says
grows with every call, whatever happens to the wall clock.

The times of files have nothing to do with it.
"""

from __future__ import annotations

import time

BELIEVED_NS = 1 << 61
"""January 2043: who says that it is later is wrong, and would leave no room for what follows."""


class Clock:
    """Times in nanoseconds, as Unix times. Good for any thread."""

    def __init__(self) -> None:
        self._ahead_ns = 0
        self._last_ns = 0

    def now_ns(self) -> int:
        """Now; more than whatever was said or heard before."""
        now_ns = time.time_ns() + self._ahead_ns
        if now_ns <= self._last_ns:  # the wall clock was set back
            self._ahead_ns += self._last_ns + 1 - now_ns
            now_ns = self._last_ns + 1
        self._last_ns = now_ns
        return now_ns

    def heard(self, at_ns: int) -> None:
        """Somebody was that far already; 0 for nobody."""
        if at_ns < BELIEVED_NS:
            self._ahead_ns = max(self._ahead_ns, at_ns - time.time_ns())
            self._last_ns = max(self._last_ns, at_ns)

    @property
    def ahead_s(self) -> float:
        """How far it is ahead of this node's own clock."""
        return self._ahead_ns / 1e9
