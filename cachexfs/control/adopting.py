"""Bringing what the peers hold into the mount, and checking what they hold against it.

A recovered file is ours like one that was written here: captured, with the holders as its
replicas, on its way to the shared file system when that answers again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from cachexfs.config import Config
from cachexfs.durability.actions import Slot
from cachexfs.errors import CacheXError
from cachexfs.mount.names import Caller, Names
from cachexfs.mount.view import View
from cachexfs.peers.messages import Replica
from cachexfs.ram.attributes import Changes, apply, owned
from cachexfs.ram.node import ROOT, Node
from cachexfs.ram.room import Room
from cachexfs.ram.tier import Tier
from cachexfs.ram.tree import Tree
from cachexfs.recovery import SinkRefused, open_holders, recover
from cachexfs.tracker import Tracker

ALREADY_THERE = "is there already"


class Adopter:
    """Recovers into one mount. Raises `CacheXError`."""

    def __init__(
        self,
        config: Config,
        volume: str,
        secret: Callable[[], bytes],
        sink: TreeSink,
    ) -> None:
        self._config = config
        self._volume = volume
        self._secret = secret
        self._sink = sink

    async def recover(self, peers: list[str], prefix: str) -> dict[str, Any]:
        """Bring back what `peers` (addresses; none: all members) hold at and below `prefix`."""
        said: list[str] = []
        async with open_holders(self._config, self._secret(), peers, said.append) as holders:
            result = await recover(
                holders, self._volume, os.fsencode(prefix), self._sink, said.append
            )
        there = [path for path, why in result.refused if why.endswith(ALREADY_THERE)]
        refused = [(path, why) for path, why in result.refused if not why.endswith(ALREADY_THERE)]
        return {
            "recovered": [os.fsdecode(path) for path in result.recovered],
            "present": [os.fsdecode(path) for path in there],
            "refused": [(os.fsdecode(path), why) for path, why in refused],
            "damaged": [(os.fsdecode(path), why) for path, why in result.damaged],
            "missing": [os.fsdecode(path) for path in result.missing],
            "said": said,
        }

    async def check_replica(self, peer: str, node: Node, path: bytes) -> str:
        """`"good"`, or what is wrong with a peer's copy; reads all of it."""
        addresses = [m.address for m in self._config.peers if m.name == peer]
        try:
            async with open_holders(self._config, self._secret(), addresses) as holders:
                for replica in await holders[0].list(self._volume, path):
                    if replica.path == path:
                        return await self._check(holders[0], replica, node)
        except CacheXError as error:
            return str(error)
        return "is not held any more"

    async def _check(self, holder: Any, replica: Replica, node: Node) -> str:
        if replica.crcs != node.crcs:
            return "holds another version"
        async for _ in holder.fetch(replica):
            pass  # the reader checks every chunk and raises for a damaged one
        return "good"


class TreeSink:
    """A `recovery.Sink` that makes recovered paths files of ours."""

    def __init__(
        self, tree: Tree, tier: Tier, tracker: Tracker, view: View, names: Names, room: Room
    ) -> None:
        self._tree = tree
        self._tier = tier
        self._tracker = tracker
        self._view = view
        self._names = names
        self._room = room

    async def directory(self, replica: Replica) -> None:
        """A directory, with those above it."""
        await self._ensure(replica.path, replica.mode, _caller(replica))

    async def symlink(self, replica: Replica) -> None:
        """A symbolic link."""
        slot = await self._slot(replica)
        if await self._find(slot) is not None:
            raise SinkRefused(ALREADY_THERE)
        await self._names.symlink(slot, replica.target, _caller(replica))

    async def begin(self, replica: Replica) -> TreeWriter:
        """A file; it gets its name when it is whole."""
        slot = await self._slot(replica)
        found = await self._find(slot)
        if found is not None:
            if found.kind != "file":
                raise SinkRefused(f"{found.kind} of that name is there")
            if await self._is_as_new(found, replica):
                raise SinkRefused(ALREADY_THERE)
        return TreeWriter(self, replica, slot)

    async def make_room(self, length: int) -> None:
        """Wait until `length` more bytes fit into the RAM tier."""
        if not self._room.has(length):
            await self._room.make(self._tree.root, length)

    def create_blob(self) -> tuple[int, int]:
        """A new blob: its number and a descriptor."""
        return self._tier.create()

    def delete_blob(self, blob: int) -> None:
        """Give up a blob."""
        self._tier.delete(blob)

    async def adopt(self, replica: Replica, slot: Slot, blob: int) -> None:
        """Make a whole blob the file at `slot`."""
        if await self._find(slot) is not None:
            await self._names.unlink(slot, _caller(replica))
        node = self._tree.new("file")
        node.blob, node.job, node.xattrs = blob, replica.job, dict(replica.xattrs)
        node.crcs, node.crcs_version = replica.crcs, 1
        self._tracker.begin(node)
        with self._tree.transaction():
            self._tree.bind(slot, node)
            self._tracker.settled(node)
            node.settled_at_ns = replica.closed_at_ns  # the version that the holders know it by
            self._tree.save(node)

    async def _is_as_new(self, node: Node, replica: Replica) -> bool:
        if node.settled_at_ns:
            return node.settled_at_ns >= replica.closed_at_ns
        try:
            return (await self._view.attributes(node)).st_mtime_ns >= replica.mtime_ns
        except OSError:
            return False

    async def _slot(self, replica: Replica) -> Slot:
        above, _, name = replica.path.rpartition(b"/")
        return Slot((await self._ensure(above, 0o755, _caller(replica))).ino, name)

    async def _ensure(self, path: bytes, mode: int, caller: Caller) -> Node:
        node = self._tree.nodes[ROOT]
        for name in filter(None, path.split(b"/")):
            slot = Slot(node.ino, name)
            found = await self._find(slot)
            if found is None:
                try:
                    found, _ = await self._names.mkdir(slot, mode, caller)
                except FileExistsError:
                    found = (await self._view.child(*slot)).node
            if found.kind != "directory":
                raise SinkRefused(f"{os.fsdecode(name)} is a {found.kind} here")
            node = found
        return node

    async def _find(self, slot: Slot) -> Node | None:
        """What is there; nothing where the shared file system cannot tell."""
        try:
            return await self._view.find(*slot)
        except OSError:
            return None


class TreeWriter:
    """A `recovery.Writer` into a blob."""

    def __init__(self, sink: TreeSink, replica: Replica, slot: Slot) -> None:
        self._sink = sink
        self._replica = replica
        self._slot = slot
        self._blob, self._fd = sink.create_blob()
        os.ftruncate(self._fd, replica.size_bytes)

    async def write_at(self, offset: int, data: bytes) -> None:
        """One chunk."""
        await self._sink.make_room(len(data))
        done = 0
        while done < len(data):
            done += os.pwrite(self._fd, memoryview(data)[done:], offset + done)

    async def finish(self) -> None:
        """The content is whole."""
        replica = self._replica
        changes = Changes(replica.mode, atime_ns=replica.atime_ns, mtime_ns=replica.mtime_ns)
        apply(self._fd, owned(changes, replica.uid, replica.gid))
        os.close(self._fd)
        await self._sink.adopt(replica, self._slot, self._blob)

    async def abort(self) -> None:
        """Leave nothing of it."""
        os.close(self._fd)
        self._sink.delete_blob(self._blob)


def _caller(replica: Replica) -> Caller:
    return Caller(replica.uid, replica.gid, replica.job)
