"""Watching a file's state from outside, often enough to time it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from cachexfs.demo.node import Node
from cachexfs.demo.waiting import NotTrue

EVERY_S = 0.005
LIMIT_S = 600.0


def until_state(node: Node, path: str, states: Sequence[str], begin: float) -> float:
    """Seconds from `begin` (perf_counter) until the file is in one of `states`."""
    while time.perf_counter() - begin < LIMIT_S:
        node.waiting.check()
        if any(file["state"] in states for file in node.ls(path)):
            return time.perf_counter() - begin
        time.sleep(EVERY_S)
    raise NotTrue(f"{path} is {states[0]}: not within {LIMIT_S:.0f} s")
