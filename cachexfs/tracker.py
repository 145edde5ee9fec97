"""Keeps the life of every captured file going: takes events in, sets off what they ask for.

The mount tells what programs did, the publisher and the replicator what became of it; whoever needs
a level waits here. Nothing but `wait` awaits, so every method is atomic for the event loop.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Protocol

import trio

from cachexfs.durability.actions import Action, Attributes, Publish, Slot
from cachexfs.durability.ledger import Entry
from cachexfs.durability.life import (
    Acknowledged,
    Committed,
    Deleted,
    Event,
    Evicted,
    Life,
    ReplicaLost,
    Settled,
    Written,
)
from cachexfs.durability.states import Effect, State
from cachexfs.ram.node import Node, Signature
from cachexfs.ram.sums import Sums
from cachexfs.ram.tier import Tier
from cachexfs.ram.tree import Tree
from cachexfs.ways import Straight

_INSIST_EVERY_S = 0.2


class Publishing(Protocol):
    """Brings files to the shared file system."""

    def add(self, job: str, action: Action) -> Entry: ...
    def retire(self, ino: int) -> None: ...
    def is_idle(self, job: str, *touching: int | Slot) -> bool: ...
    def has_pending(self, ino: int) -> bool: ...
    def is_publishing(self, ino: int, version: int) -> bool: ...
    async def finished(self, entry: Entry) -> None: ...
    def flushed_bytes(self, ino: int) -> int: ...
    def haste(self) -> AbstractContextManager[None]: ...


class Replicating(Protocol):
    """Brings files to peers."""

    def follow(self, node: Node) -> None: ...
    def replicate(self, node: Node) -> None: ...
    def order(self, action: Action) -> None: ...
    def mark_durable(self, node: Node) -> None: ...


class Telling(Protocol):
    """Tells other nodes what names stand for."""

    def changed(self, slot: Slot) -> None: ...
    def look_now(self, slot: Slot) -> None: ...
    def look(self, slot: Slot) -> None: ...
    async def confirm(self, slots: Iterable[Slot]) -> None: ...


class Preparing(Protocol):
    """Makes ready for the next file."""

    def closed(self, node: Node) -> None: ...


class Departing(Protocol):
    """Chooses the way of each file, and measures it: see `ways.py`."""

    def writing(self, node: Node) -> None: ...
    def captured(self, node: Node) -> None: ...
    def depart(self, node: Node, effects: tuple[Effect, ...]) -> tuple[Effect, ...]: ...
    def cancelled(self, node: Node) -> None: ...
    def before_peers_are_told(self, action: Action, node: Node | None) -> None: ...
    def somebody_waits_for(self, level: State) -> None: ...
    async def clear_to_flush(self, ino: int, version: int) -> None: ...
    def copied(self, node: Node, version: int) -> None: ...
    def acknowledged(self, node: Node, version: int, peer: str) -> None: ...
    def committed(self, node: Node, version: int) -> None: ...


class Relaxing(Protocol):
    """Gives room back when it can."""

    def relax(self) -> None: ...


@dataclass
class _Waiter:
    level: State
    version: int
    reached: trio.Event = field(default_factory=trio.Event)


class Tracker:
    """The life of every captured file. `publisher` to `ways`: set by the daemon."""

    publisher: Publishing
    replicator: Replicating
    room: Relaxing
    prewarm: Preparing | None = None
    registrar: Telling | None = None
    ways: Departing = Straight()

    def __init__(
        self,
        tree: Tree,
        tier: Tier,
        sums: Sums,
        copies_wanted: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._tree = tree
        self._tier = tier
        self._copies_wanted = copies_wanted
        self._clock = clock
        self._sums = sums
        self._to_recheck, self._unsure = trio.open_memory_channel[int](math.inf)
        self._waiters: dict[int, list[_Waiter]] = {}
        self._mapped: set[int] = set()
        self._held: dict[int, tuple[Effect, ...]] = {}

    # --- what programs did ----------------------------------------------------------------------

    def begin(self, node: Node) -> None:
        """A new file of ours, still without content."""
        node.life = Life(self._copies_wanted)
        self.ways.writing(node)
        self.replicator.follow(node)

    def adopt(self, node: Node) -> None:
        """A file of the shared file system is about to be ours, with the content it has."""
        node.life = Life.of_source(self._copies_wanted)

    def written(self, node: Node) -> None:
        """The content changed, or is about to."""
        if node.life is None or node.life.state in (State.OPEN, State.GONE):
            return
        with self._tree.transaction():
            self._handle(node, Written())
            self.ways.writing(node)
            self.replicator.follow(node)
            for slot in node.names:
                self._tree.bind(slot, node)

    def settled(self, node: Node, *, start: bool = True) -> None:
        """The program closed, fsynced or renamed the file: its way to safety begins.

        Without `start` it begins at the next `settled`. A close may be that of a child process
        that inherited the descriptor; the last one, the release, starts the way.
        """
        if node.life is None or node.blob is None or not node.names:
            return
        if self.prewarm is not None and start and not node.writers:
            self.prewarm.closed(node)
        if node.life.settled == node.life.version and not (start and node.ino in self._held):
            return
        with self._tree.transaction():
            if node.life.settled < node.life.version:
                node.settled_at_ns = self._tree.clock.now_ns()
                status = self._tier.status(node.blob)
                node.settled_as = Signature(status.st_size, status.st_mtime_ns)
                self._held[node.ino] = self._take(node, Settled())
                self._tell_others(node, "content")
                self.ways.captured(node)
            if start:
                is_past_us = node.writers > 0 and node.backing_id is not None
                node.unsure |= is_past_us or node.ino in self._mapped
                for effect in self.ways.depart(node, self._held.pop(node.ino, ())):
                    self._set_off(node, effect)
            self._tree.save(node)

    def closed(self, node: Node) -> None:
        """The last writer is gone, and the file's way to safety begins, in the order of closes.

        A mapping made past us belongs to the blob, not to the file that was closed: the program may
        go on storing into it, and nobody tells us when it ends. So we look, and then compare.
        """
        if node.life is None or node.blob is None or not node.names:
            return
        if node.opens and node.backing_id is not None:  # our own descriptor hides a mapping
            node.unsure = True
        elif self._tier.is_open_for_writing(node.blob):
            node.unsure = True
            self._mapped.add(node.ino)
        self.settled(node)
        if node.unsure and not node.opens and node.ino not in self._mapped:
            self._to_recheck.send_nowait(node.ino)

    def _look_at_mapped(self) -> None:
        for ino in sorted(self._mapped):
            node = self._tree.nodes.get(ino)
            if node is None or node.blob is None or node.opens:
                self._mapped.discard(ino)  # gone, or open again: its close will come
            elif not self._tier.is_open_for_writing(node.blob):
                self._mapped.discard(ino)
                self.closed(node)

    async def recheck(self) -> None:
        """Hold files that were `unsure` against their checksums, once nobody writes them."""
        async for ino in self._unsure:
            node = self._tree.nodes.get(ino)
            if node is None or node.life is None or node.writers:
                continue
            if await self._sums.have_changed(node, node.life.version) and not node.writers:
                self.written(node)
                self.settled(node)
            node.unsure = node.writers > 0
            if node.ino in self._tree.nodes:
                self._tree.save(node)

    def resume(self, node: Node) -> None:
        """After a restart: take the file's way up where the journal left it."""
        if node.life is None or node.blob is None:
            return
        if node.writers:  # the mount outlived the daemon: its last close starts what was held
            if node.state is State.CAPTURED:
                self._held[node.ino] = (Effect.REPLICATE, Effect.FLUSH)
            return
        was_open = node.state is State.OPEN
        self.closed(node)
        if was_open:
            return
        if len(node.life.holders()) < self._copies_wanted:
            self.replicator.replicate(node)
        if not self.publisher.is_publishing(node.ino, node.life.version):
            with self._tree.transaction():
                self._set_off(node, Effect.FLUSH)

    def deleted(self, node: Node) -> None:
        """The last name is gone; the bytes stay until the last close."""
        if node.life is not None:
            self._handle(node, Deleted())

    def is_idle(self, job: str, *touching: int | Slot) -> bool:
        """Whether nothing of this job, and nothing that touches these, is still to be done."""
        return self.publisher.is_idle(job, *touching)

    def is_busy(self, node: Node) -> bool:
        """Whether changes of this file are still to be made on the shared file system."""
        return self.publisher.has_pending(node.ino)

    def state_of(self, node: Node) -> State:
        """How safe a file is under the name that it has now.

        One whose bytes are durable under the name it had before, with the renaming still to be
        made there, would not be found by its name after a crash.
        """
        if node.remote is not None:
            return State.REPLICATED if node.remote.holders else State.CAPTURED
        if node.life is None or node.state is not State.DURABLE or not self.is_busy(node):
            return node.state
        enough = len(node.life.holders()) >= self._copies_wanted
        return State.REPLICATED if enough else State.CAPTURED

    def perform(self, job: str, action: Action) -> Entry:
        """A change of names: to be made on the shared file system and at the peers, in order."""
        self.tell_peers(action)
        if isinstance(action, Attributes) and (node := self._tree.nodes.get(action.ino)):
            self._tell_others(node, "attributes")
        return self.publisher.add(job, action)

    def tell_peers(self, action: Action) -> None:
        """A change of names that the shared file system has already: the peers follow."""
        self.ways.before_peers_are_told(action, self._tree.nodes.get(action.ino))
        self.replicator.order(action)

    def flushed_bytes(self, node: Node) -> int:
        """How much of the present content has reached the shared file system."""
        if node.life and node.blob is not None and node.state is State.DURABLE:
            return self._tier.path(node.blob).stat().st_size
        return self.publisher.flushed_bytes(node.ino)

    def retain(self, node: Node) -> bool:
        """Keep the present version's bytes for its publishing; the node needs a new blob.

        So that an old pointer is still published in its place in the order when a program
        truncates and rewrites it. One version back at most: the backlog stays bounded.
        """
        life = node.life
        if life is None or node.blob is None or node.retained or node.opens > 1:
            return False
        if life.state not in (State.CAPTURED, State.REPLICATED):
            return False
        node.retained[life.version] = node.blob
        node.blob = None
        return True

    async def finished(self, entry: Entry) -> None:
        """Return when a change of names is made on the shared file system."""
        await self.publisher.finished(entry)

    # --- what became of it ----------------------------------------------------------------------

    async def clear_to_flush(self, ino: int, version: int) -> None:
        """Return when this version may be copied to the shared file system."""
        await self.ways.clear_to_flush(ino, version)

    async def confirm(self, node: Node) -> None:
        """Ask the homes whether another node has closed one of a file's names since."""
        if self.registrar is not None:
            await self.registrar.confirm(node.names)

    def copied(self, node: Node, version: int) -> None:
        """This version is copied under a hidden name, or about to be, and its turn has come."""
        self.ways.copied(node, version)

    def committed(self, node: Node, version: int) -> None:
        """The shared file system holds this version, in place."""
        if node.life is not None:
            self._handle(node, Committed(version))
            self.ways.committed(node, version)
            self._tree.save(node)
            self.replicator.mark_durable(node)
            self.room.relax()

    def overtaken(self, node: Node) -> None:
        """Others have brought this file there, and have changed it since: ours is not wanted."""
        if node.names or node.life is None:
            return
        self._handle(node, Deleted())
        if node.blob is not None and node.opens == 0:
            self._tree.after_commit(partial(self._tier.delete, node.blob))
            node.blob = None
        self._tree.save(node)

    def acknowledged(self, node: Node, version: int, peer: str) -> None:
        """A peer holds this version on its disk."""
        if node.life is not None:
            self._handle(node, Acknowledged(peer, version))
            self._tell_others(node, "holders")
            self.ways.acknowledged(node, version, peer)
            self._tree.save(node)

    def replica_lost(self, node: Node, peer: str) -> None:
        """A peer holds nothing of this file any more."""
        if node.life is not None:
            self._handle(node, ReplicaLost(peer))
            self._tree.save(node)

    def evicted(self, node: Node) -> None:
        """The RAM tier gave its copy up."""
        if node.life is not None:
            self._handle(node, Evicted())
            self._tree.save(node)

    # --- who waits for it -----------------------------------------------------------------------

    async def wait(self, node: Node, level: State) -> None:
        """Return when the present content is at least as safe as `level`, or deleted."""
        life = node.life
        if life is None or not node.names:
            return
        waiter = _Waiter(level, life.version)
        if life.reached(level, waiter.version):
            return
        waiting = self._waiters.setdefault(node.ino, [])
        waiting.append(waiter)
        self.ways.somebody_waits_for(level)
        try:
            with self.publisher.haste():
                await waiter.reached.wait()
        finally:
            waiting.remove(waiter)
            if not waiting:
                self._waiters.pop(node.ino, None)

    async def insist(self) -> None:
        """Who waits for an fsync must not wait for a writer who goes on writing.

        The first write after the fsync cancelled the way of what was there; settling again takes
        it up, with what was written since, which an fsync may include.
        """
        while True:
            await trio.sleep(_INSIST_EVERY_S)
            self._look_at_mapped()
            for ino in list(self._waiters):
                node = self._tree.nodes.get(ino)
                if node is not None and node.state is State.OPEN:
                    self.settled(node)

    def _tell_others(self, node: Node, news: Literal["content", "attributes", "holders"]) -> None:
        if self.registrar is None:
            return
        tell = {
            "content": self.registrar.changed,
            "attributes": self.registrar.look_now,
            "holders": self.registrar.look,
        }[news]
        for slot in node.names:
            tell(slot)

    def _handle(self, node: Node, event: Event) -> None:
        for effect in self._take(node, event):
            self._set_off(node, effect)

    def _take(self, node: Node, event: Event) -> tuple[Effect, ...]:
        """Let the life have the event, and wake whom it concerns; returns what is to be done."""
        assert node.life is not None
        effects = node.life.handle(event, self._clock())
        if Effect.CANCEL in effects:
            self._held.pop(node.ino, None)
            self.ways.cancelled(node)
        gone = node.life.state is State.GONE
        for waiter in self._waiters.get(node.ino, []):
            if gone or node.life.reached(waiter.level, waiter.version):
                waiter.reached.set()
        return effects

    def _set_off(self, node: Node, effect: Effect) -> None:
        assert node.life is not None
        if effect is Effect.REPLICATE:
            self.replicator.replicate(node)
        elif effect is Effect.FLUSH:
            action = Publish(node.ino, node.life.version, tuple(sorted(node.names)))
            entry = self.publisher.add(node.job, action)
            for slot in node.names:
                self._tree.bind(slot, node, entry.seq)
        else:
            self.publisher.retire(node.ino)
