"""Calls that may never come back: each runs in a thread, for a limited time.

One that does not come back in time is left behind, and as long as one is out, others fail at once
instead of waiting in line: a program never waits for more than one time limit. A probe finds out
when the file system is well again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import trio

from cachexfs.pfs.health import Health, SourceBlocked

T = TypeVar("T")

_THREADS = 32
_PROBE_EVERY_S = 0.5


class Patience:
    """Runs calls to one file system. `timeout_s`: how long a program may wait for one."""

    def __init__(self, health: Health, timeout_s: float) -> None:
        self._health = health
        self._timeout_s = timeout_s
        self._foreground = trio.CapacityLimiter(_THREADS)
        self._background = trio.CapacityLimiter(_THREADS)
        self._probes = trio.CapacityLimiter(1)
        self._left_behind: list[trio.Event] = []

    async def ask(self, call: Callable[[], T]) -> T:
        """Run a call in a thread, for at most the time limit."""
        if self._health.is_blocked:
            raise SourceBlocked
        return await self._limited(call, self._foreground)

    async def alter(self, call: Callable[[], T]) -> T:
        """As `ask`, for a change. One that is left behind may still be made, whenever that is; so
        `work`, which carries out what comes after it, waits until it has come back.
        """
        token, back, started = trio.lowlevel.current_trio_token(), trio.Event(), threading.Event()

        def run() -> T:
            started.set()
            try:
                return call()
            finally:
                with suppress(trio.RunFinishedError):
                    token.run_sync_soon(back.set)

        try:
            return await self.ask(run)
        except SourceBlocked:
            if started.is_set():
                self._left_behind.append(back)
            raise

    async def work(self, call: Callable[[], T]) -> T:
        """Run a call in a thread, for as long as it takes; left behind when cancelled.

        Copying may rightly take minutes, so it says nothing about whether the source answers.
        """
        while self._left_behind:
            await self._left_behind[-1].wait()
            self._left_behind = [back for back in self._left_behind if not back.is_set()]
        return await trio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=self._background)

    async def watch(self, probe: Callable[[], object]) -> None:
        """Make a harmless call from time to time, so that silence is noticed, and its end."""
        while True:
            try:
                await self._limited(probe, self._probes)
            except OSError as error:
                self._health.note(error)
            await trio.sleep(_PROBE_EVERY_S)

    async def _limited(self, call: Callable[[], T], limiter: trio.CapacityLimiter) -> T:
        with trio.move_on_after(self._timeout_s):
            return await trio.to_thread.run_sync(
                self._watched, call, abandon_on_cancel=True, limiter=limiter
            )
        raise SourceBlocked

    def _watched(self, call: Callable[[], T]) -> T:
        number = self._health.begin()
        error: OSError | None = None
        try:
            return call()
        except OSError as caught:
            error = caught
            raise
        finally:
            self._health.end(number, error)
