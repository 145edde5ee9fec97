"""Holding the copies of a file against its checksums."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

import trio

from cachexfs.durability.checksum import chunk_count, differing
from cachexfs.durability.states import State
from cachexfs.ram import checksums
from cachexfs.ram.node import Node
from cachexfs.ram.tier import Tier

GOOD = "good"


class Source(Protocol):
    """The shared file system, as far as it is needed here."""

    async def open(self, node: Node) -> int: ...


class Checker:
    """Checks RAM, the shared file system and the peers. `ask_peer` checks one peer's copy."""

    def __init__(
        self,
        tier: Tier,
        source: Source,
        ask_peer: Callable[[str, Node, bytes], Awaitable[str]],
        path_of: Callable[[Node], bytes],
    ) -> None:
        self._tier = tier
        self._source = source
        self._ask_peer = ask_peer
        self._path_of = path_of
        self._threads = trio.CapacityLimiter(1)

    async def check(self, node: Node) -> dict[str, str]:
        """Tier -> `"good"` or what is wrong, for every tier that has the present content."""
        life = node.life
        if life is None or not node.has_known_crcs:
            return {"source": "not written here: no checksums to hold it against"}
        found = {}
        if node.blob is not None:
            found["ram"] = await self._compare(node, self._tier.path(node.blob))
        if node.state is State.DURABLE:
            found["source"] = await self._compare_source(node)
        for peer in life.holders():
            found[f"peer {peer}"] = await self._ask_peer(peer, node, self._path_of(node))
        return found

    async def _compare(self, node: Node, path: Path) -> str:
        try:
            size, crcs = await trio.to_thread.run_sync(
                checksums.of_file, path, limiter=self._threads
            )
        except OSError as error:
            return f"cannot be read: {error.strerror}"
        return verdict(node.crcs, size, crcs)

    async def _compare_source(self, node: Node) -> str:
        try:
            fd = await self._source.open(node)
        except OSError as error:
            return f"cannot be opened: {error.strerror}"
        try:
            return await self._compare(node, Path(f"/proc/self/fd/{fd}"))
        finally:
            os.close(fd)


def verdict(expected: bytes, size_bytes: int, found: bytes) -> str:
    """`"good"`, or which chunks differ."""
    if len(expected) != len(found):
        wanted = len(expected) // 4
        return f"has {chunk_count(size_bytes)} chunks instead of {wanted}"
    bad = differing(expected, found)
    return GOOD if not bad else f"damaged in chunk {', '.join(map(str, bad[:8]))}"
