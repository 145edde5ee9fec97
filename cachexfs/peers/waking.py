"""Limits of time for a process that may be stopped: by a signal, a debugger, a host that is asleep.

When it goes on, time is up and what it waited for has come, both at once; and those that it waited
for are not to blame. So who notices late that time is up waits once more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

LATE_S = 0.1
"""A loop that runs notices within a fraction of that, also on a machine that has much to do."""

T = TypeVar("T")


async def in_time(call: Callable[[], Awaitable[T]], within_s: float) -> T:
    """What `call` returns; it may be begun twice. Raises `trio.TooSlowError` after `within_s`."""
    for _ in range(2):
        begun_s = trio.current_time()
        with trio.move_on_after(within_s):
            return await call()
        if trio.current_time() - begun_s < within_s + LATE_S:
            break
    raise trio.TooSlowError
