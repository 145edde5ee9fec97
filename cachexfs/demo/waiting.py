"""Waiting for what a demo expects, with a time limit, and ending in order at Ctrl-C.

A signal only sets a mark here, which every wait looks at. So nothing is ever cut short between
starting a process and noting that it has to be ended.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TypeVar

from cachexfs.errors import CacheXError

T = TypeVar("T")

_EVERY_S = 0.02
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class NotTrue(CacheXError):
    """Something that was to be shown is not so."""


class Interrupted(CacheXError):
    """A signal asked for the end; exit code as a shell reports it."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.exit_code = 128 + number


class Waiting:
    """What waits, and what cuts waiting short."""

    def __init__(self) -> None:
        self._signal = 0

    def check(self) -> None:
        """Raises `Interrupted` when a signal asked for the end."""
        if self._signal:
            raise Interrupted(self._signal)

    def until(self, condition: Callable[[], T | None], what: str, limit_s: float) -> T:
        """The first true value of `condition`. Raises `NotTrue` after the limit."""
        deadline = time.monotonic() + limit_s
        while True:
            self.check()
            if value := condition():
                return value
            if time.monotonic() > deadline:
                raise NotTrue(f"{what}: not within {limit_s:.0f} s")
            time.sleep(_EVERY_S)

    def mark(self, number: int, frame: FrameType | None = None) -> None:
        """A signal handler: the next wait ends."""
        self._signal = self._signal or number


@contextlib.contextmanager
def interruptible() -> Iterator[Waiting]:
    """Signals that ask for the end are marks within the block, as they were after it."""
    waiting = Waiting()
    before = {number: signal.signal(number, waiting.mark) for number in _SIGNALS}
    try:
        yield waiting
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def claim(truth: object, sentence: str) -> None:
    """Raises `NotTrue` with what is not so, unless it is."""
    if not truth:
        raise NotTrue(f"not true: {sentence}")
