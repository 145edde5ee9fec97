"""Timing a file's way to a level of safety from outside."""

from __future__ import annotations

import time

from cachexfs.demo.node import Node

LIMIT_S = 600.0


def until_level(node: Node, path: str, level: str, begin: float) -> float:
    """Seconds from `begin` (perf_counter) until the file is `level`, as `cachexfs wait` sees it."""
    node.client.ask("wait", paths=[path], level=level, timeout_s=LIMIT_S, patience_s=None)
    return time.perf_counter() - begin
