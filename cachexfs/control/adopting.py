"""Bringing what the peers hold into the mount, and checking what they hold against it.

A recovered file is ours like one that was written here: captured, on its way to the shared file
system when that answers again. What the shared file system is known to have, and does not give
because it is silent, becomes a RAM copy of that, and stays durable.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import trio

from cachexfs.config import Config
from cachexfs.durability.actions import Slot
from cachexfs.errors import CacheXError
from cachexfs.mount.attributes import TIMEOUT_S
from cachexfs.mount.names import Caller, Names
from cachexfs.mount.view import View
from cachexfs.peers.messages import Replica
from cachexfs.pfs.source import Source
from cachexfs.ram.attributes import Changes, apply, owned
from cachexfs.ram.node import ROOT, Node, Signature
from cachexfs.ram.room import Room
from cachexfs.ram.tier import Tier
from cachexfs.ram.tree import Tree
from cachexfs.ram.writing import write_all
from cachexfs.recovery import AlreadyThere, SinkRefused, open_holders, recover
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
                holders.peers, self._volume, os.fsencode(prefix), self._sink, said.append,
                holders.connect,
            )  # fmt: skip
        if self._sink.replaced:
            # The kernel may ask for what a name stood for before, for as long as it need not ask
            # again; then it would be told that this is gone.
            self._sink.replaced = False
            await trio.sleep(TIMEOUT_S)
        return result.as_answer(said)

    async def check_replica(self, peer: str, node: Node, path: bytes) -> str:
        """`"good"`, or what is wrong with a peer's copy; reads all of it."""
        addresses = [m.address for m in self._config.peers if m.name == peer]
        try:
            async with open_holders(self._config, self._secret(), addresses) as holders:
                for replica in await holders.peers[0].list(self._volume, path):
                    if replica.path == path:
                        return await self._check(holders.peers[0], replica, node)
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
        self,
        tree: Tree,
        tier: Tier,
        tracker: Tracker,
        view: View,
        names: Names,
        room: Room,
        source: Source,
    ) -> None:
        self._tree = tree
        self._tier = tier
        self._tracker = tracker
        self._view = view
        self._names = names
        self._room = room
        self._source = source
        self.replaced = False
        """Whether names stand for other nodes than before."""

    async def directory(self, replica: Replica) -> None:
        """A directory, with those above it."""
        await self._ensure(replica.path, replica.mode, _caller(replica))

    async def symlink(self, replica: Replica) -> None:
        """A symbolic link."""
        slot = await self._slot(replica)
        if (found := await self._find(slot)) is not None:
            if found.kind == "symlink" and found.target == replica.target:
                raise AlreadyThere(ALREADY_THERE)
            raise SinkRefused(f"another {found.kind} of that name is there")
        await self._names.symlink(slot, replica.target, _caller(replica))

    async def link(self, replica: Replica, old: bytes) -> None:
        """A second name for a file that was recovered."""
        slot, node = await self._slot(replica), await self._walk(old)
        if node is None:
            raise SinkRefused(f"{os.fsdecode(old)}, another name of it, is gone again")
        if (found := await self._find(slot)) is node:
            raise AlreadyThere(ALREADY_THERE)
        if found is not None:
            raise SinkRefused(f"another {found.kind} of that name is there")
        await self._names.link(node, slot, _caller(replica))

    async def holds(self, path: bytes) -> bool:
        """Whether there is a file that can be read."""
        node = await self._walk(path)
        return node is not None and node.kind == "file" and await self._can_be_read(node)

    async def begin(self, replica: Replica) -> TreeWriter:
        """A file; it gets its name when it is whole."""
        slot = await self._slot(replica)
        if (found := await self._find(slot)) is not None:
            await self._check(found, replica)
        return TreeWriter(self, replica, slot)

    async def _check(self, found: Node, replica: Replica) -> None:
        """Whether a file may take the place of what is there."""
        if found.kind != "file":
            raise SinkRefused(f"a {found.kind} of that name is there")
        age_ns = await self._newer_by_ns(found, replica)
        if age_ns < 0:
            return
        if await self._can_be_read(found):
            raise AlreadyThere(ALREADY_THERE)
        if age_ns > 0:
            raise SinkRefused("the shared file system has a newer version, and does not answer")
        if found.opens:
            raise SinkRefused("a program has it open, and the shared file system does not answer")

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
        found = await self._find(slot)
        is_bare = found is not None and found.blob is None and not found.opens
        if found is not None and is_bare and await self._newer_by_ns(found, replica) == 0:
            self._fill(found, replica, blob)
            return
        with self._tree.transaction():
            if found is not None:
                self._names.give_up(slot, found)
                self.replaced = True
            node = self._tree.new("file")
            node.blob, node.job, node.xattrs = blob, replica.job, dict(replica.xattrs)
            node.crcs, node.crcs_version = replica.crcs, 1
            self._tracker.begin(node)
            self._tree.bind(slot, node)
            self._tracker.settled(node)
            node.settled_at_ns = replica.closed_at_ns  # the version that the holders know it by
            self._tree.save(node)

    def _fill(self, node: Node, replica: Replica, blob: int) -> None:
        """What the shared file system has of this very version gets its RAM copy (back)."""
        if node.life is None:
            self._tracker.adopt(node)
            node.signature = Signature(replica.size_bytes, replica.mtime_ns)
            node.xattrs = dict(replica.xattrs)
        assert node.life is not None
        node.blob, node.life.in_ram = blob, True
        node.crcs, node.crcs_version = replica.crcs, node.life.version
        node.settled_at_ns, node.job = replica.closed_at_ns, replica.job
        self._tree.save(node)

    async def _newer_by_ns(self, node: Node, replica: Replica) -> int:
        """By how much what is there is newer: 0 for the same, less for older or unknown."""
        if node.settled_at_ns:
            return node.settled_at_ns - replica.closed_at_ns
        try:
            return (await self._view.attributes(node)).st_mtime_ns - replica.mtime_ns
        except OSError:
            return -1

    async def _can_be_read(self, node: Node) -> bool:
        """Whether its bytes are here, or the shared file system gives them."""
        if node.blob is not None:
            return True
        try:
            await self._source.statvfs()  # which no cache of a file system answers
            await self._source.status(node)
        except OSError:
            return False
        return True

    async def _walk(self, path: bytes) -> Node | None:
        """What is at a path; None when nothing is, or nobody can tell."""
        node: Node | None = self._tree.nodes[ROOT]
        for name in path.split(b"/"):
            if node is None or node.kind != "directory":
                return None
            node = await self._find(Slot(node.ino, name))
        return node

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
        """What is there; nothing where the shared file system cannot tell.

        What another node has told of is seen here, and nobody here brings it to the source.
        """
        try:
            found = await self._view.find(*slot)
        except OSError:
            return None
        return None if found is None or found.remote is not None else found


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
        write_all(self._fd, offset, data)

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
