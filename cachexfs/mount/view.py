"""The merged view: our names over those of the shared file system, and attributes of both.

While the shared file system is in trouble, what it was last seen to have stands in for it. A
directory that was never seen whole is not guessed at: the trouble is passed on, because "no such
file" might make a program start from nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Awaitable, Callable, Set
from functools import partial
from typing import NamedTuple, TypeVar

import pyfuse3
import trio

from cachexfs.durability.actions import Slot
from cachexfs.durability.states import State
from cachexfs.mount import attributes
from cachexfs.mount.errnos import answer
from cachexfs.mount.familiar import LOOK_EVERY_S, Familiar
from cachexfs.mount.files import OpenFiles
from cachexfs.mount.making import is_made_as, is_making
from cachexfs.mount.ports import Elsewhere, Source
from cachexfs.ram.node import ROOT, Node, Origin, Signature, kind_of
from cachexfs.ram.remote import Remote
from cachexfs.ram.room import Room
from cachexfs.ram.tier import Tier
from cachexfs.ram.tree import GONE, Tree

T = TypeVar("T")

_SCOUTED_AT_MOST = 1024
"""Directories waiting to be looked at; a walk through a large tree is not followed further."""


_RECENT_S = 0.1
"""How long a directory's attributes are taken to be as they were, unless we change it: the kernel
asks for them again with every file that is made in it."""

_RECENT_AT_MOST = 1024

_LISTED_AT_MOST = 1000
"""Names of a directory that is looked at again and again."""


class _Recent(NamedTuple):
    """What a directory's status was, when, and `Tree.changes_in` it then."""

    status: os.stat_result
    at_s: float
    changes: int


class Found(NamedTuple):
    """A node, and its status on the shared file system where that was asked for."""

    node: Node
    status: os.stat_result | None


class _Busy(Exception):
    """The source has not answered briefly, and what was seen can stand in."""


class View:
    """Names and attributes as programs see them. Raises OSError."""

    def __init__(
        self,
        tree: Tree,
        tier: Tier,
        source: Source,
        files: OpenFiles,
        room: Room,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self._tree = tree
        self._tier = tier
        self._source = source
        self._files = files
        self._room = room
        self._elsewhere = elsewhere
        self._recent: dict[int, _Recent] = {}
        self._familiar = Familiar()
        self._looked_for = trio.Event()
        self._to_scout, self._unseen = trio.open_memory_channel[int](_SCOUTED_AT_MOST)

    async def scout(self) -> None:
        """Look at directories that came into use, so that they are known when trouble comes."""
        with contextlib.suppress(OSError):
            await self._status(self._tree.root)  # no lookup brings the root's attributes
        self._to_scout.send_nowait(ROOT)
        async for ino in self._unseen:
            if ino in self._tree.nodes and self._tree.seen(ino) is None:
                with contextlib.suppress(OSError):
                    await self._source_entries(ino)

    async def keep_up(self) -> None:
        """Look again and again at directories that programs save into."""
        while True:
            with trio.move_on_after(LOOK_EVERY_S):
                await self._looked_for.wait()
            self._looked_for = trio.Event()
            for ino in self._familiar.to_look_at(trio.current_time()):
                with contextlib.suppress(OSError):
                    await self._look_again(ino)

    async def _look_again(self, ino: int) -> None:
        node = self._tree.nodes.get(ino)
        if node is None:
            self._familiar.forget(ino)
        elif len(self._tree.seen(ino) or ()) <= _LISTED_AT_MOST:
            await self._status(node)
            await self._source_entries(ino)

    def node(self, ino: int) -> Node:
        """The node of an inode number that the kernel knows."""
        try:
            return self._tree.nodes[ino]
        except KeyError:
            raise answer(errno.ESTALE) from None

    def named(self, ino: int) -> Node:
        """As `node`, for what is reached by its name, unless it is open.

        A file whose name another node has taken away or given to another is not there any more: the
        kernel, which goes on with the name for a while, is made to look it up again.
        """
        node = self.node(ino)
        is_over = node.kind == "file" and not node.names and not node.opens and node.blob is None
        if is_over:
            raise answer(errno.ESTALE)
        return node

    async def child(self, parent: int, name: bytes, pid: int = 0) -> Found:
        """What a name stands for; `pid` is the thread that asks, where it may be making a file."""
        slot = Slot(parent, name)
        if ours := self._ours(slot):
            return ours
        if not self.is_on_source(parent) and not await self._has_arrived(parent):
            return await self._in_one_of_ours(slot)
        try:
            status, trouble = await self._on_source(slot, self._patience_s(slot, pid))
        except _Busy:
            return await self._as_seen(slot)
        remote = await self.told(slot, on_source=status is not None)
        if ours := self._ours(slot):  # it was created or removed while we asked
            return ours
        if trouble is None:
            self._tree.saw_name(slot, status)
        if remote is not None:
            return await self._at_another_node(slot, remote, status)
        if status is not None:
            return self._reflect(slot, status)
        if trouble is not None and (known := self._tree.known_at(slot)) is not None:
            return Found(known, None)  # as the daemon before this one knew it
        raise trouble or answer(errno.ENOENT)

    def _patience_s(self, slot: Slot, pid: int) -> float | None:
        """How long the source may take to answer for a name; None: as long as always."""
        entries, now_s = self._tree.seen(slot.parent), trio.current_time()
        if entries is None or not is_making(pid):
            return None
        self._is_made_in(slot.parent, now_s)
        status = entries.get(slot.name)
        # A directory on the way to the file may be another node's, made just now.
        is_known = self._directory(status) is not None if status else is_made_as(pid, slot.name)
        is_past = self._tree.is_published(slot)
        if is_past or not (is_known and self._familiar.is_fresh(slot.parent, now_s)):
            return None
        return self._familiar.patience_s(now_s)

    def _is_made_in(self, ino: int, now_s: float) -> None:
        """A file is made in a directory: it and those above it will be asked for again."""
        node: Node | None = self._tree.nodes.get(ino)
        while node is not None:
            if self._familiar.used(node.ino, now_s):
                self._looked_for.set()
            above = node.slot.parent if node.slot is not None else ROOT
            node = None if node.ino == ROOT else self._tree.nodes.get(above)

    def _directory(self, status: os.stat_result) -> Node | None:
        """The node of a directory, if that is what a status is of and it has one."""
        node = self._tree.known_as(Origin(status.st_dev, status.st_ino))
        return node if node is not None and node.kind == "directory" else None

    async def _as_seen(self, slot: Slot) -> Found:
        """What a name stood for when its directory was looked at, or what other nodes say now."""
        status = (self._tree.seen(slot.parent) or {}).get(slot.name)
        if status is not None and (directory := self._directory(status)) is not None:
            return Found(directory, None)
        remote = await self.told(slot, on_source=False)
        if ours := self._ours(slot):
            return ours
        if remote is not None:
            return await self._at_another_node(slot, remote, None)
        raise answer(errno.ENOENT)

    @property
    def has_others(self) -> bool:
        """Whether there are other nodes that may say something."""
        return self._elsewhere is not None

    async def told(self, slot: Slot, *, on_source: bool) -> Remote | None:
        """What other nodes say of a name now."""
        if self._elsewhere is None:
            return None
        return await self._elsewhere.find(self.node(slot.parent), slot.name, on_source=on_source)

    async def _has_arrived(self, ino: int) -> bool:
        """Whether the shared file system has got a directory of another node by now."""
        node = self.node(ino)
        slot = node.slot
        if node.remote is None or slot is None or self._tree.binding(slot) is not None:
            return False
        if not self.is_on_source(slot.parent) and not await self._has_arrived(slot.parent):
            return False
        with contextlib.suppress(OSError):
            if (status := await self._source.lookup(slot)) is not None:
                self._reflect(slot, status)
        return self.is_on_source(ino)

    async def _in_one_of_ours(self, slot: Slot) -> Found:
        """A name in a directory that is still to be made there: other nodes may make it too."""
        remote = await self.told(slot, on_source=False)
        if ours := self._ours(slot):
            return ours
        if remote is None:
            raise answer(errno.ENOENT)
        return await self._at_another_node(slot, remote, None)

    async def _on_source(
        self, slot: Slot, patience_s: float | None
    ) -> tuple[os.stat_result | None, OSError | None]:
        """The status that a name has there, or had; and the trouble that leaves it open.

        Raises `_Busy` when the source was to answer sooner.
        """
        try:
            return await self._briefly(partial(self._source.lookup, slot), patience_s), None
        except OSError as error:
            if not self._source.is_trouble(error):
                raise
            seen = self._tree.seen(slot.parent)
            return (None, error) if seen is None else (seen.get(slot.name), None)

    async def _briefly(self, ask: Callable[[], Awaitable[T]], patience_s: float | None) -> T:
        """Raises `_Busy` when that takes longer; None: it may."""
        if patience_s is None:
            return await ask()
        if patience_s > 0:
            with trio.move_on_after(patience_s):
                return await ask()
            self._familiar.was_busy(trio.current_time())
        raise _Busy

    async def _at_another_node(
        self, slot: Slot, remote: Remote, status: os.stat_result | None
    ) -> Found:
        """What another node says that a name stands for. The shared file system may know already.

        Raises FileNotFoundError when it says: nothing.
        """
        if remote.kind == "gone":
            raise answer(errno.ENOENT)
        if remote.at is not None:
            return await self._moved(slot, remote)
        if status is not None and _is_same(remote, status):
            return self._reflect(slot, status)
        return Found(self._tree.elsewhere(remote, slot), None)

    async def _moved(self, slot: Slot, remote: Remote) -> Found:
        """An object that is on the shared file system under another name for now."""
        assert remote.at is not None
        directory, name = remote.at
        above = self._tree.root if slot.parent == ROOT else self.node(slot.parent)
        device = (await self._status(above) or self._no_status()).st_dev
        parent = self._tree.known_as(Origin(device, directory))
        if parent is None:
            root = await self._status(self._tree.root)
            is_root = root is not None and (root.st_dev, root.st_ino) == (device, directory)
            parent = self._tree.root if is_root else None
        place = Slot(parent.ino, name) if parent is not None else slot
        status = await self._source.lookup(place)
        if status is None or status.st_ino != remote.ino:  # it has moved there meanwhile
            place, status = slot, await self._source.lookup(slot)
        if status is None:
            raise answer(errno.ENOENT)
        found = self._reflect(slot, status)
        found.node.place = place
        return found

    def _no_status(self) -> os.stat_result:
        raise answer(errno.ENOENT)

    async def find(self, parent: int, name: bytes) -> Node | None:
        """What a name stands for; None when there is nothing."""
        try:
            return (await self.child(parent, name)).node
        except FileNotFoundError:
            return None

    async def entries(self, ino: int) -> dict[bytes, Found]:
        """All names of a directory."""
        if not self.is_on_source(ino):
            await self._has_arrived(ino)
        before = self._tree.bindings_in(ino)
        listed = await self._source_entries(ino)
        ours = self._tree.bindings_in(ino)
        with self._tree.transaction():
            found = {
                name: self._reflect(Slot(ino, name), status)
                for name, status in listed.items()
                if name not in ours and name not in before
            }
        for name, binding in ours.items():
            if binding.ino != GONE and binding.ino in self._tree.nodes:
                found[name] = Found(self._tree.nodes[binding.ino], None)
        await self._add_others(ino, found, listed, before.keys() | ours.keys())
        for name in before.keys() - ours.keys():
            # Published, or removed there, while we asked: the listing may be of before or after.
            with contextlib.suppress(FileNotFoundError):
                found[name] = await self.child(ino, name)
        return found

    async def _add_others(
        self,
        ino: int,
        found: dict[bytes, Found],
        listed: dict[bytes, os.stat_result],
        ours: Set[bytes],
    ) -> None:
        """Put what other nodes say of the names of a directory over what was found there."""
        if self._elsewhere is None:
            return
        for name, remote in (await self._elsewhere.all_in(self.node(ino))).items():
            if name in ours or self._tree.binding(Slot(ino, name)) is not None:
                continue
            found.pop(name, None)
            with contextlib.suppress(FileNotFoundError):
                status = listed.get(name)
                found[name] = await self._at_another_node(Slot(ino, name), remote, status)

    async def attributes(
        self, node: Node, status: os.stat_result | None = None, pid: int = 0
    ) -> pyfuse3.EntryAttributes:
        """The attributes of a node; `status` spares the question to the shared file system.

        `pid`: as for `child`.
        """
        if node.blob is not None:
            status = self._tier.status(node.blob)
            return attributes.of_status(node, status, len(node.names))
        is_apart = node.life is not None or not node.names
        if is_apart and (fd := self._files.fd(node.ino)) is not None:
            return attributes.of_status(node, os.fstat(fd), len(node.names))
        if not self._is_reflected(node):
            return attributes.of_node(node)
        status = status or await self._status(node, pid)
        if status is None:
            return attributes.of_node(node)
        return attributes.of_status(node, status, self._links(node, status))

    def _links(self, node: Node, status: os.stat_result) -> int:
        """The link count, with the names that the source is still to be given."""
        is_pending = any(self._tree.binding(slot) for slot in node.names)
        return max(status.st_nlink, len(node.names)) if is_pending else status.st_nlink

    def is_on_source(self, ino: int) -> bool:
        """Whether a directory exists on the shared file system already."""
        node = self.node(ino)
        return node.ino == ROOT or node.place is not None

    def _is_reflected(self, node: Node) -> bool:
        return node.ino == ROOT or node.place is not None

    async def _status(self, node: Node, pid: int = 0) -> os.stat_result | None:
        """The status there; None when only what the node remembers can be had."""
        changes = self._tree.changes_in(node.ino)
        recent = self._recent.get(node.ino)
        asked_s = trio.current_time()
        is_same = recent is not None and recent.changes == changes
        if recent is not None and is_same and asked_s - recent.at_s < _RECENT_S:
            return recent.status
        patience_s = None
        if recent is not None and self._familiar.is_fresh(node.ino, asked_s) and is_making(pid):
            patience_s = self._familiar.patience_s(asked_s)
        try:
            status = await self._briefly(partial(self._source.status, node), patience_s)
        except _Busy:
            assert recent is not None
            return recent.status
        except OSError as error:
            if (fd := self._files.fd(node.ino)) is not None:
                return os.fstat(fd)
            if not self._source.is_trouble(error) or error.errno == errno.ESTALE:
                raise
            if (last := self._last_seen(node)) is not None:
                return last
            # Without its size a file is not guessed at.
            if not node.mode or (node.kind == "file" and node.signature is None):
                raise
            return None
        attributes.take_status(node, status)
        if node.kind == "directory":
            if len(self._recent) >= _RECENT_AT_MOST:
                self._recent.clear()
            self._recent[node.ino] = _Recent(status, asked_s, changes)
        return status

    def was_changed(self, node: Node) -> None:
        """The attributes of a node are not what they were."""
        self._tree.changed(node.ino)

    def _ours(self, slot: Slot) -> Found | None:
        binding = self._tree.binding(slot)
        if binding is None:
            return None
        if binding.ino == GONE:
            raise answer(errno.ENOENT)
        return Found(self.node(binding.ino), None)

    def _last_seen(self, node: Node) -> os.stat_result | None:
        """The status that a node's object had when its directory was last looked at."""
        seen = self._tree.seen(node.place.parent) if node.place else None
        status = seen.get(node.place.name) if seen and node.place else None
        same = status is not None and Origin(status.st_dev, status.st_ino) == node.origin
        return status if same else None

    async def _source_entries(self, ino: int) -> dict[bytes, os.stat_result]:
        if not self.is_on_source(ino):
            return {}
        told, asked_s = self._tree.published(ino), trio.current_time()
        with self._tree.noting(ino) as changes:
            try:
                found = await self._source.listing(ino)
            except OSError as error:
                seen = self._tree.seen(ino)
                if seen is None or not self._source.is_trouble(error):
                    raise
                return dict(seen)
        for name, status in changes.items():
            found.pop(name, None)
            if status is not None:
                found[name] = status
        self._tree.saw(ino, dict(found), told)
        self._familiar.saw(ino, asked_s)
        return found

    def _reflect(self, slot: Slot, status: os.stat_result) -> Found:
        origin, kind = Origin(status.st_dev, status.st_ino), kind_of(status.st_mode)
        if kind == "directory":
            self._tree.arrived(slot, origin)
        known = self._tree.known_as(origin)
        if known is not None and (known.kind != kind or self._was_replaced(known, status)):
            self._forget_copy(known, kind == known.kind)
        with self._tree.transaction():
            node = self._tree.reflect(origin, kind, slot)
            is_alone = status.st_nlink == 1 and node.state is State.DURABLE
            if is_alone and not self._room.is_busy(node):
                node.names = {slot}  # another node may have renamed it
            attributes.take_status(node, status)
        if kind == "directory" and self._tree.seen(node.ino) is None:
            with contextlib.suppress(trio.WouldBlock):
                self._to_scout.send_nowait(node.ino)
        return Found(node, status)

    def _was_replaced(self, node: Node, status: os.stat_result) -> bool:
        """Whether another node changed a file since it became durable from here."""
        return (
            node.state is State.DURABLE
            and not self._room.is_busy(node)  # then it may be we who changed it
            and node.signature is not None
            and node.signature != Signature(status.st_size, status.st_mtime_ns)
        )

    def _forget_copy(self, node: Node, same_kind: bool) -> None:
        """Our copy is out of date: the shared file system has something newer."""
        if not same_kind:  # the number of an inode that is gone was given out again
            self._tree.identify(node, None)
        if node.opens:
            return  # who has it open goes on seeing what was opened, as on NFS
        if node.blob is not None:
            self._room.evict(node)
        node.signature, node.life = None, None


def _is_same(remote: Remote, status: os.stat_result) -> bool:
    """Whether the shared file system has by now what another node tells of."""
    if remote.kind == "directory":
        return kind_of(status.st_mode) == "directory"
    signature = Signature(remote.size_bytes, remote.mtime_ns)
    return signature == Signature(status.st_size, status.st_mtime_ns)
