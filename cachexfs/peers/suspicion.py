"""Whether an owner that is not heard of is dead, or only cut off from here.

It is dead when it has been silent for `adopt_after_s` and its signs of life on the shared file
system (`cachexfs.pulse`) have not changed for half of that, as seen from here. So a holder that is
cut off, or was stopped for a while, does not take those for dead who live.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import trio

from cachexfs import pulse
from cachexfs.pulse import Sign


@dataclass
class _Watch:
    sign: Sign | None
    since_s: float


class Suspicion:
    """`in_thread` runs what blocks."""

    def __init__(
        self, adopt_after_s: float, in_thread: Callable[[Callable[[], Any]], Awaitable[Any]]
    ) -> None:
        self._adopt_after_s = adopt_after_s
        self._in_thread = in_thread
        self._watches: dict[tuple[str, str], _Watch] = {}

    async def is_dead(self, owner: str, volume: str, silent_s: float) -> bool:
        """To be asked again and again; `silent_s`: since it was heard of. Raises OSError."""
        key = (owner, volume)
        if silent_s < self._adopt_after_s / 2:
            self._watches.pop(key, None)
            return False
        asked_s = trio.current_time()  # the answer may take long, and counts for then
        sign = await self._in_thread(partial(pulse.look, Path(volume), owner))
        watch = self._watches.get(key)
        if watch is None or watch.sign != sign:
            watch = self._watches[key] = _Watch(sign, asked_s)
        has_stopped = sign is None or asked_s - watch.since_s >= self._adopt_after_s / 2
        return has_stopped and silent_s >= self._adopt_after_s

    def done_before_ns(self, owner: str, volume: str) -> int:
        """Everything that it closed before then needs no commit, as far as it has left word."""
        watch = self._watches.get((owner, volume))
        return watch.sign.done_before_ns if watch is not None and watch.sign is not None else 0
