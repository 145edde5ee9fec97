"""Content of durable files that is not in RAM any more, brought back for who makes copies of it.

From a member that holds it, else from the shared file system, if that answers; chunk by chunk
against the checksums of the version that was closed here.
"""

from __future__ import annotations

import logging
import os

from cachexfs.durability.checksum import CHUNK_BYTES, chunk_count, chunk_crc, crc_at
from cachexfs.peers.fetching import Fetching
from cachexfs.pfs.source import Source
from cachexfs.ram.attributes import Changes, apply, owned
from cachexfs.ram.node import Node
from cachexfs.ram.room import HIGH_WATER
from cachexfs.ram.tier import Tier
from cachexfs.ram.writing import write_all

log = logging.getLogger(__name__)


class Restorer:
    """`fetching`: None where no other node is asked."""

    def __init__(self, tier: Tier, source: Source, fetching: Fetching | None) -> None:
        self._tier = tier
        self._source = source
        self._fetching = fetching

    async def bring(self, node: Node) -> int | None:
        """A new blob with the content and attributes of a file, or None; the caller deletes it."""
        if node.signature is None or not node.has_known_crcs or not node.mode:
            return None
        size_bytes = node.signature.size_bytes
        if not self._has_room(size_bytes):
            return None
        blob, fd = self._tier.create()
        try:
            os.ftruncate(fd, size_bytes)
            await self._fill(node, fd, size_bytes)
            changes = Changes(node.mode, atime_ns=node.atime_ns, mtime_ns=node.mtime_ns)
            apply(fd, owned(changes, node.uid, node.gid))
        except OSError as error:
            log.info("inode %d is not to be had: %s", node.ino, error)
            self._tier.delete(blob)
            return None
        except BaseException:
            self._tier.delete(blob)
            raise
        finally:
            os.close(fd)
        return blob

    def _has_room(self, size_bytes: int) -> bool:
        """What is new must not have to wait for what is made again."""
        used, limit = self._tier.usage()
        return used + size_bytes <= limit * HIGH_WATER

    async def _fill(self, node: Node, target: int, size_bytes: int) -> None:
        if self._fetching is not None and await self._fetching.find_replica(node):
            try:
                await self._fetching.copy_to(node, target)
                return
            except OSError as error:
                log.info("inode %d from the members: %s", node.ino, error)
            finally:
                if not node.opens:
                    self._fetching.forget(node.ino)
        await self._from_source(node, target, size_bytes)

    async def _from_source(self, node: Node, target: int, size_bytes: int) -> None:
        fd = await self._source.open(node)
        try:
            for index in range(chunk_count(size_bytes)):
                offset = index * CHUNK_BYTES
                data = await self._source.read(fd, offset, min(CHUNK_BYTES, size_bytes - offset))
                if chunk_crc(data) != crc_at(node.crcs, index):
                    raise OSError("the shared file system has other content")
                write_all(target, offset, data)
        finally:
            os.close(fd)
