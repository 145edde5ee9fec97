"""Reading long answers without holding up the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

LONG = 100_000
"""From this size on, in bytes or characters, an answer is read in a thread: some milliseconds."""

Answer = TypeVar("Answer", bytes, str)
Result = TypeVar("Result")


async def in_thread(read: Callable[[Answer], Result], answer: Answer) -> Result:
    """`read(answer)`."""
    if len(answer) < LONG:
        return read(answer)
    return await trio.to_thread.run_sync(read, answer)
