"""The end of a job's stay on its GPUs, in order, each step bounded (DESIGN 2.4).

1. the signal, to every process; 2. its grace; 3. SIGKILL to all of it, until none is left; 4. its
GPUs are seen empty. Gone is what was seen gone: nothing is reported before the last step.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import trio

from lazerd.backend.tree import Tree

KILL_AGAIN_S = 0.1
"""Between two rounds of SIGKILL: what was being forked during the first is there for the next."""


@dataclass(slots=True)
class Departure:
    """What is known about how a job goes. `told_at_s`: when it was signalled, since the epoch."""

    signal_number: int
    grace_s: float
    told_at_s: float | None = None
    killed: bool = False


async def ask_to_go(tree: Tree, departure: Departure, note: Callable[[float], None]) -> None:
    """Steps 1 and 2; a job that was signalled by the daemon before us is not signalled again."""
    if departure.told_at_s is None:
        departure.told_at_s = time.time()
        note(departure.told_at_s)
        # One that is stopped would take no notice.
        await tree.signal(departure.signal_number, signal.SIGCONT)
    left_s = departure.told_at_s + departure.grace_s - time.time()
    with trio.move_on_after(max(0.0, min(left_s, departure.grace_s))):
        await tree.until_gone()


async def make_go(tree: Tree, departure: Departure) -> None:
    """Step 3, without a bound: cancel it."""
    while await trio.to_thread.run_sync(tree.members):
        departure.killed = True
        await tree.kill()
        with trio.move_on_after(KILL_AGAIN_S):
            await tree.until_gone()


async def within(bound_s: float, steps: Callable[[], Awaitable[None]]) -> bool:
    """Whether the steps came to their end in time."""
    with trio.move_on_after(bound_s) as scope:
        await steps()
    return not scope.cancelled_caught
