"""The checksums of captured files: computed once for each content, by whoever needs them first.

A file that settled while a program could still write it past us may change without a sign: a store
through a mapping changes neither size nor times, and nobody is told. Such a file (`Node.unsure`) is
summed before anything of it is copied, and once more when its last writer is gone: if the sums
differ, what was copied may be stale, and it is new content.
"""

from __future__ import annotations

import logging
from pathlib import Path

import trio

from cachexfs.ram import checksums
from cachexfs.ram.node import Node
from cachexfs.ram.tier import Tier
from cachexfs.ram.tree import Tree

log = logging.getLogger(__name__)


class Sums:
    """Chunk checksums of blobs, in `Node.crcs`."""

    def __init__(self, tree: Tree, tier: Tier) -> None:
        self._tree = tree
        self._tier = tier
        self._threads = trio.CapacityLimiter(1)
        self._under_way: dict[tuple[int, int], trio.Event] = {}

    async def ensure(self, node: Node, version: int) -> bool:
        """See to it that the checksums of `version` are known; False if it is past."""
        key = (node.ino, version)
        while is_present(node, version):
            if node.has_known_crcs:
                return True
            if (other := self._under_way.get(key)) is not None:
                await other.wait()
                continue
            if not await self._take(node, version):
                return False
        return False

    async def have_changed(self, node: Node, version: int) -> bool:
        """Whether the blob is not any more what the checksums of `version` say."""
        if not await self.ensure(node, version):
            return False
        found = await self._compute(node, version)
        return is_present(node, version) and found is not None and found != node.crcs

    async def _take(self, node: Node, version: int) -> bool:
        key = (node.ino, version)
        done = self._under_way[key] = trio.Event()
        try:
            crcs = await self._compute(node, version)
        finally:
            del self._under_way[key]
            done.set()
        if crcs is None or not is_present(node, version):
            return False
        node.crcs, node.crcs_version = crcs, version
        self._tree.save(node)
        return True

    async def _compute(self, node: Node, version: int) -> bytes | None:
        """The checksums of the blob; None when it cannot be read, or `version` is past."""
        while (path := self._where(node, version)) is not None:
            try:
                _, crcs = await trio.to_thread.run_sync(
                    checksums.of_file, path, limiter=self._threads
                )
            except OSError as error:
                # Deleted or moved meanwhile is no failure: who deletes a file does not wait for us.
                if isinstance(error, FileNotFoundError) and self._where(node, version) != path:
                    continue
                log.warning("%s cannot be read for its checksums: %s", path, error)
                return None
            else:
                return crcs
        return None

    def _where(self, node: Node, version: int) -> Path | None:
        """Where the bytes of `version` are; None when it is past."""
        if node.blob is None or not is_present(node, version):
            return None
        return self._tier.path(node.blob)


def is_present(node: Node, version: int) -> bool:
    """Whether `version` is what a reader would get, and ours."""
    life = node.life
    return (
        life is not None
        and life.version == version == life.settled
        and node.blob is not None
        and bool(node.names)
    )
