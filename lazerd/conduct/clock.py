"""Seconds since the epoch that never go back, not even over restarts of the daemon."""

from __future__ import annotations

import time


class Clock:
    """The wall clock as it was at the start, and from then on the monotonic one.

    Somebody who sets the wall clock then neither stops the daemon nor makes it wake too early.
    """

    def __init__(self, not_before_s: float = 0.0) -> None:
        self._offset_s = max(time.time(), not_before_s) - time.monotonic()

    def now_s(self) -> float:
        """Now."""
        return time.monotonic() + self._offset_s

    def until_s(self, at_s: float) -> float:
        """How long to wait until it is `at_s`, in seconds of whoever waits."""
        return max(0.0, at_s - self.now_s())

    def rest_s(self) -> float:
        """How long the instant still lasts that it is now: what happens in it is decided together.

        Nothing here: two things that happen at once are told at once, by whoever sees them.
        """
        return 0.0
