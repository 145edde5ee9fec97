"""Blobs that have their pages before they have a name.

On small pages most of what a write into a tmpfs costs is getting the pages. For a file of a name
pattern that comes again and again they are got between two saves, in a thread, for a blob that
waits for its file; what the file does not use of it is given back when it is closed.

A waiting blob is worth little: it goes when room is needed, before any copy of anything goes, and
when nobody has come for it for long.
"""

from __future__ import annotations

import ctypes
import logging
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import trio

from cachexfs.ram.forecast import Forecast, pattern_of
from cachexfs.ram.node import Node
from cachexfs.ram.tier import Tier

WORTH_IT_BYTES = 16 << 20
"""Smaller files are written in less time than anybody notices."""
QUIET_S = 1.0
"""After the last close: the save is over, and the memory's bandwidth is free."""
KEPT_S = 1800.0
"""A pattern that does not come again within half an hour is over."""
WAITING_AT_MOST = 16
TIER_SHARE = 0.5
"""Of the tier's budget: only below this is there anything to spare."""

_STEP_BYTES = 64 << 20
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE of linux/falloc.h
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Waiting:
    """A blob without a file, open for reading and writing."""

    pattern: bytes
    blob: int
    fd: int
    since: float


class Prewarm:
    """`path_of` gives the path of a node. `run` must be running for anything to be made ready."""

    def __init__(self, tier: Tier, path_of: Callable[[Node], bytes]) -> None:
        self._tier = tier
        self._path_of = path_of
        self._forecast = Forecast()
        self._wanted: deque[bytes] = deque(maxlen=WAITING_AT_MOST)
        self._waiting: list[_Waiting] = []
        self._untrimmed: set[int] = set()
        self._asked = trio.Event()
        self._closed_at = 0.0
        self._is_short = False
        self._thread = trio.CapacityLimiter(1)

    def take(self, path: bytes) -> tuple[int, int] | None:
        """A blob that is ready for a new file, and its descriptor, if there is one."""
        if not self._waiting:
            return None
        pattern = pattern_of(path)
        found = next((ready for ready in self._waiting if ready.pattern == pattern), None)
        if found is None:
            return None
        self._waiting.remove(found)
        self._untrimmed.add(found.blob)
        os.utime(found.fd)
        return found.blob, found.fd

    def closed(self, node: Node) -> None:
        """Nobody has this file open for writing any more."""
        if node.blob is None:
            return
        size = self._tier.status(node.blob).st_size
        if node.blob in self._untrimmed:
            self._untrimmed.discard(node.blob)
            self._tier.trim(node.blob)
        if size >= WORTH_IT_BYTES:
            pattern = pattern_of(self._path_of(node))
            self._forecast.learn(pattern, size)
            self._wanted.append(pattern)
            self._closed_at = trio.current_time()
            self._asked.set()

    def give_up(self) -> None:
        """Room is needed."""
        self._is_short = True  # also for the one that is being made
        for ready in self._waiting:
            self._drop(ready)
        self._waiting.clear()

    async def run(self) -> None:
        """Make blobs ready until cancelled."""
        while True:
            with trio.move_on_after(KEPT_S / 10):
                await self._asked.wait()
            self._expire()
            await trio.sleep_until(self._closed_at + QUIET_S)
            self._asked = trio.Event()
            while self._wanted:
                await self._make_ready(self._wanted.popleft())

    # --- within ---------------------------------------------------------------------------------

    def _expire(self) -> None:
        now = trio.current_time()
        for ready in [each for each in self._waiting if each.since + KEPT_S < now]:
            self._waiting.remove(ready)
            self._drop(ready)

    async def _make_ready(self, pattern: bytes) -> None:
        size = self._forecast.size_of(pattern)
        if len(self._waiting) >= WAITING_AT_MOST or size < WORTH_IT_BYTES:
            return
        self._is_short = False
        blob, fd = self._tier.create()
        ready = _Waiting(pattern, blob, fd, trio.current_time())
        work = partial(self._allocate, fd, size)
        if await trio.to_thread.run_sync(work, limiter=self._thread) and not self._is_short:
            self._waiting.append(ready)
        else:
            self._drop(ready)

    def _allocate(self, fd: int, size: int) -> bool:
        """Get the pages, step by step: whoever needs room does not wait for all of them."""
        for offset in range(0, size, _STEP_BYTES):
            length = min(_STEP_BYTES, size - offset)
            used, limit = self._tier.usage()
            if self._is_short or used + length > limit * TIER_SHARE:
                return False
            if _libc.fallocate(fd, _KEEP_SIZE, ctypes.c_int64(offset), ctypes.c_int64(length)):
                log.info("no pages ahead of time: %s", os.strerror(ctypes.get_errno()))
                return False
        return True

    def _drop(self, ready: _Waiting) -> None:
        with suppress(OSError):
            os.close(ready.fd)
        self._tier.delete(ready.blob)


_libc = ctypes.CDLL(None, use_errno=True)
