"""Leaves signs of life on the shared file system, as long as this mount reaches it."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path

import trio

from cachexfs import pulse
from cachexfs.pfs.source import Source
from cachexfs.ram.node import Node
from cachexfs.ram.tree import Tree

BEATS = 6
"""In the time after which a silent node is taken for dead: a holder sees three missing before it
acts, and the servers see little of it (a small file every ten seconds from each node)."""


class Heart:
    """`root`: of the source. `adopt_after_s`: after so much silence a node is taken for dead."""

    def __init__(
        self, source: Source, root: Path, tree: Tree, node: str, tag: str, adopt_after_s: float
    ) -> None:
        self._source = source
        self._root = root
        self._tree = tree
        self._node = node
        self._tag = tag
        self._every_s = adopt_after_s / BEATS
        self._count = 0
        self._last_ns = 0
        self._unsafe_since_ns: dict[int, int] = {}

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            self._count = max(
                self._count + 1, self._tree.clock.now_ns() >> 20
            )  # also over restarts
            call = partial(
                pulse.beat, self._root, self._node, self._tag, self._count, self.done_before_ns()
            )
            with contextlib.suppress(OSError):  # its health is others' to watch
                await self._source.work(call)
            await trio.sleep(self._every_s)

    def done_before_ns(self) -> int:
        """Everything that was closed before then is durable, replaced or deleted.

        A file that is not counts from the last time that all of it was: it may have had several
        versions since, and peers may hold any of them.
        """
        unsafe = {node.ino: node for node in self._tree.nodes.values() if _is_unsafe(node)}
        self._unsafe_since_ns = {
            ino: self._unsafe_since_ns.get(ino, min(self._last_ns, node.settled_at_ns))
            for ino, node in unsafe.items()
        }
        self._last_ns = self._tree.clock.now_ns()
        return min(self._unsafe_since_ns.values(), default=self._last_ns)


def _is_unsafe(node: Node) -> bool:
    life = node.life
    return life is not None and bool(node.names) and life.settled > life.committed
