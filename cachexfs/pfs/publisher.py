"""Bringing captured work to the shared file system: data in parallel, visibility in order.

One task per ledger entry. A `Publish` first copies its file to a hidden name (many at once, through
a limiter), then waits for its turn in the ledger, then commits; the other actions wait for their
turn and act. Whatever the file system answers, an entry is tried again, with backoff, until it
is done or not wanted any more: the only copy is never given up because a flush failed.

What is atomic: an entry, its bindings and its node change together, in one journal transaction,
between two awaits. What is left after a crash: the entry, which is carried out again; every action
therefore succeeds when it finds its own work done.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

import trio

from cachexfs.durability.actions import (
    Action,
    Attributes,
    Link,
    Mkdir,
    Publish,
    Rename,
    Rmdir,
    Slot,
    Symlink,
    Unlink,
)
from cachexfs.durability.ledger import Entry, Ledger
from cachexfs.pfs import copying, renameat2
from cachexfs.pfs.health import is_trouble
from cachexfs.pfs.source import Source
from cachexfs.ram.attributes import Changes, like
from cachexfs.ram.journal import Journal
from cachexfs.ram.node import HIDDEN, Node, Origin, Signature
from cachexfs.ram.tier import Tier
from cachexfs.ram.tree import Tree

FLUSHES = 4
"""Files copied at the same time: enough to keep several storage targets busy, few enough that the
first ones are safe soon."""

_BACKOFF_FIRST_S, _BACKOFF_LAST_S = 0.1, 5.0


class Observer(Protocol):
    """Who wants to know. Called in the event loop; must not await."""

    def committed(self, node: Node, version: int) -> None:
        """The shared file system holds this version, in place."""

    def lost_place(self, node: Node) -> None:
        """The file cannot be put in place; `node.reason` says why."""


@dataclass
class _Errand:
    """An entry under way."""

    entry: Entry
    turn: trio.Event = field(default_factory=trio.Event)
    done: trio.Event = field(default_factory=trio.Event)
    flushed_bytes: int = 0
    wanted: bool = True
    error: OSError | None = None


class Publisher:
    """Carries the ledger out. `run` must be running for anything to happen."""

    def __init__(
        self,
        tree: Tree,
        tier: Tier,
        journal: Journal,
        source: Source,
        observer: Observer,
        *,
        tag: str,
    ) -> None:
        self._tag = tag.encode()
        self._tree = tree
        self._tier = tier
        self._journal = journal
        self._source = source
        self._observer = observer
        self._ledger = Ledger()
        self._errands: dict[int, _Errand] = {}
        self._flushes = trio.CapacityLimiter(FLUSHES)
        self._nursery: trio.Nursery | None = None
        self._perform: dict[type[Action], Callable[[Entry], Awaitable[None]]] = {
            Rename: self._rename,
            Link: self._link,
            Unlink: self._unlink,
            Rmdir: self._rmdir,
            Mkdir: self._mkdir,
            Symlink: self._symlink,
            Attributes: self._attributes,
        }

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Carry out what the journal still holds, and all that is added, until cancelled."""
        async with trio.open_nursery() as self._nursery:
            for entry in self._journal.entries():
                self._start(self._ledger.append(entry.job, entry.action, entry.seq))
            task_status.started()
            await trio.sleep_forever()

    # --- what others ask of it ------------------------------------------------------------------

    def add(self, job: str, action: Action) -> Entry:
        """Put an action at the end of a job's order; journaled when this returns."""
        entry = self._ledger.append(job, action)
        self._journal.add_entry(entry)
        self._start(entry)
        return entry

    def is_idle(self, job: str, *touching: int | Slot) -> bool:
        """Whether nothing of this job, and nothing that touches these, is waiting."""
        return self._ledger.is_idle(job, *touching)

    def is_publishing(self, ino: int, version: int) -> bool:
        """Whether an entry for this very content is waiting."""
        return any(
            isinstance(action := errand.entry.action, Publish)
            and (action.ino, action.version) == (ino, version)
            for errand in self._errands.values()
        )

    async def finished(self, entry: Entry) -> None:
        """Return when an entry is done."""
        if errand := self._errands.get(entry.seq):
            await errand.done.wait()

    def flushed_bytes(self, ino: int) -> int:
        """How much of a file has reached the shared file system, under its hidden name."""
        of_file = (e.flushed_bytes for e in self._publishing() if e.entry.action.ino == ino)
        return max(of_file, default=0)

    def waiting(self) -> int:
        """How many entries are not carried out yet."""
        return len(self._errands)

    def held_up(self) -> list[tuple[Entry, OSError]]:
        """The entries that fail at the moment, oldest first, with the last error."""
        return [(e.entry, e.error) for e in self._errands.values() if e.error is not None]

    def retire(self, ino: int) -> None:
        """The file is deleted or has new content: copies of the old one are not wanted."""
        for errand in self._publishing():
            if errand.entry.action.ino == ino:
                errand.wanted = self._blob_of(errand.entry.action) is not None

    def _publishing(self) -> list[_Errand]:
        return [e for e in self._errands.values() if isinstance(e.entry.action, Publish)]

    # --- one entry ------------------------------------------------------------------------------

    def _start(self, entry: Entry) -> None:
        errand = self._errands[entry.seq] = _Errand(entry)
        if self._ledger.is_ready(entry.seq):
            errand.turn.set()
        assert self._nursery is not None
        self._nursery.start_soon(self._carry_out, errand)

    async def _carry_out(self, errand: _Errand) -> None:
        action = errand.entry.action
        if isinstance(action, Publish):
            await self._insist(errand, lambda: self._flush(errand, action))
            await errand.turn.wait()
            await self._insist(errand, lambda: self._publish(errand, action))
        else:
            await errand.turn.wait()
            await self._insist(errand, lambda: self._perform[type(action)](errand.entry))
        self._close(errand)

    async def _insist(self, errand: _Errand, attempt: Callable[[], Awaitable[None]]) -> None:
        """Try until it works."""
        pause_s = _BACKOFF_FIRST_S
        while True:
            try:
                await attempt()
            except OSError as error:
                errand.error = error
                self._source.health.note(error)
                self._explain(errand.entry, error)
                await trio.sleep(pause_s)
                pause_s = min(pause_s * 2, _BACKOFF_LAST_S)
            else:
                if errand.error is not None:
                    errand.error = None
                    self._explain(errand.entry, None)
                return

    def _explain(self, entry: Entry, error: OSError | None) -> None:
        node = self._tree.nodes.get(entry.action.ino)
        if node is not None:
            node.reason = "" if error is None else _sentence(error)

    def _close(self, errand: _Errand) -> None:
        """The entry is done: the source speaks for its names again, and others may go."""
        with self._tree.transaction():
            for slot in errand.entry.action.slots_touched():
                self._tree.settle(slot, errand.entry.seq)
            self._journal.drop_entry(errand.entry.seq)
        del self._errands[errand.entry.seq]
        for entry in self._ledger.done(errand.entry.seq):
            self._errands[entry.seq].turn.set()
        errand.done.set()

    # --- publishing a file ----------------------------------------------------------------------

    def _blob_of(self, action: Publish) -> int | None:
        """The blob with this version's bytes; None when they are gone or not wanted."""
        node = self._tree.nodes.get(action.ino)
        if node is None or node.life is None or not node.names:
            return None
        if action.version in node.retained:
            return node.retained[action.version]
        is_present = node.life.version == action.version == node.life.settled
        return node.blob if is_present and action.version > node.life.committed else None

    async def _flush(self, errand: _Errand, action: Publish) -> None:
        parent, temp = action.slots[0].parent, self._temp_name(errand.entry)

        def progress(done_bytes: int) -> bool:
            errand.flushed_bytes = done_bytes
            return errand.wanted

        def call() -> None:
            with self._source.directory(parent) as fd:
                copying.flush(path, fd, temp, progress)

        async with self._flushes:
            blob = self._blob_of(action)
            if blob is None:
                return
            path = self._tier.path(blob)
            try:
                await self._source.work(call)
            except copying.Stopped:
                pass

    async def _publish(self, errand: _Errand, action: Publish) -> None:
        blob = self._blob_of(action)
        if blob is None:
            await self._discard(errand.entry, action)
            return
        node, path = self._tree.nodes[action.ino], self._tier.path(blob)
        temp, xattrs = self._temp_name(errand.entry), dict(node.xattrs)

        def call() -> copying.Committed:
            first, *others = action.slots
            with self._source.directory(first.parent) as fd:
                made = copying.commit(fd, temp, first.name, path, xattrs)
            for slot in others:
                self._link_over(first, slot, temp)
            return made

        try:
            made = await self._source.work(call)
        except FileNotFoundError:
            # The hidden file is gone (another node removed the directory's content, or a crash
            # came between flush and commit): copy again, then commit.
            await self._flush(errand, action)
            raise
        self._source.health.well()
        self._published(node, action, made)

    def _published(self, node: Node, action: Publish, made: copying.Committed) -> None:
        with self._tree.transaction():
            if (blob := node.retained.pop(action.version, None)) is not None:
                self._tier.delete(blob)
            self._tree.identify(node, made.origin)
            node.signature, node.place = made.signature, action.slots[0]
            for slot in action.slots:
                self._tree.saw_name(slot, made.status)
            self._tree.save(node)
            self._observer.committed(node, action.version)

    async def _discard(self, entry: Entry, action: Publish) -> None:
        temp = Slot(action.slots[0].parent, self._temp_name(entry))
        node = self._tree.nodes.get(action.ino)
        if node and (blob := node.retained.pop(action.version, None)) is not None:
            self._tier.delete(blob)
            self._tree.save(node)

        def call() -> None:
            try:
                with self._source.directory(temp.parent) as fd:
                    os.unlink(temp.name, dir_fd=fd)
            except FileNotFoundError:
                pass

        await self._source.work(call)

    def _link_over(self, first: Slot, slot: Slot, temp: bytes) -> None:
        hidden = Slot(slot.parent, temp)
        self._source.make_link(first, hidden)
        self._source.move(hidden, slot)
        with self._source.directory(slot.parent) as fd:
            copying.sync_directory(fd)

    # --- the other actions: each finds its own work done, and then succeeds ------------------------

    def _origin_at(self, slot: Slot) -> Origin | None:
        try:
            with self._source.directory(slot.parent) as fd:
                status = os.stat(slot.name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return Origin(status.st_dev, status.st_ino)

    async def _rename(self, entry: Entry) -> None:
        action = entry.action
        assert isinstance(action, Rename)
        node = self._tree.nodes.get(action.ino)
        origin = node.origin if node else None

        def call() -> None:
            if action.exchange:
                self._source.move(action.old, action.new, renameat2.EXCHANGE)
            elif origin is not None and self._origin_at(action.old) == origin:
                self._source.move(action.old, action.new)
            elif origin is None or self._origin_at(action.new) != origin:
                # Never published under the old name: what stands there was overwritten here.
                self._remove(action.old)
            self._sync(action.old.parent, action.new.parent)

        await self._source.work(call)
        self._moved(action.old, action.new, exchange=action.exchange)

    def _moved(self, old: Slot, new: Slot, *, exchange: bool) -> None:
        """Follow what a rename on the shared file system did to the places there."""
        inos = {binding.ino for s in (old, new) if (binding := self._tree.binding(s))}
        nodes = [self._tree.nodes[ino] for ino in inos if ino in self._tree.nodes]
        for node in nodes:
            if node.place == old:
                node.place = new
            elif node.place == new:
                node.place = old if exchange else None
            self._tree.save(node)
        self._tree.saw_name(old, None)

    async def _link(self, entry: Entry) -> None:
        action = entry.action
        assert isinstance(action, Link)

        def call() -> None:
            try:
                self._source.make_link(action.old, action.new)
            except FileExistsError:
                self._link_over(action.old, action.new, self._temp_name(entry))
            except FileNotFoundError:
                return  # not published under the first name: its next publishing makes both
            self._sync(action.new.parent)

        await self._source.work(call)

    async def _unlink(self, entry: Entry) -> None:
        action = entry.action
        assert isinstance(action, Unlink)
        await self._source.work(lambda: self._remove(action.slot))
        self._tree.saw_name(action.slot, None)

    async def _rmdir(self, entry: Entry) -> None:
        action = entry.action
        assert isinstance(action, Rmdir)

        def call() -> None:
            try:
                self._source.remove_directory(action.slot)
            except FileNotFoundError:
                pass
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise
                # Another node put something in: its files win, and the directory stays.

        await self._source.work(call)
        self._tree.saw_name(action.slot, None)
        self._source.directories.forget(action.ino)

    async def _mkdir(self, entry: Entry) -> None:
        action = entry.action
        assert isinstance(action, Mkdir)
        node = self._tree.nodes.get(action.ino)
        if node is None:
            return
        mode, uid, gid = node.mode, node.uid, node.gid

        def call() -> os.stat_result:
            try:
                return self._source.make_directory(action.slot, mode, uid, gid)
            except FileExistsError:
                with self._source.directory(action.slot.parent) as fd:
                    found = os.stat(action.slot.name, dir_fd=fd, follow_symlinks=False)
                if not stat.S_ISDIR(found.st_mode):
                    raise
                return found

        made = await self._source.work(call)
        self._tree.identify(node, Origin(made.st_dev, made.st_ino))
        node.place = action.slot
        self._tree.saw_name(action.slot, made)
        self._tree.save(node)

    async def _symlink(self, entry: Entry) -> None:
        action = entry.action
        assert isinstance(action, Symlink)
        node = self._tree.nodes.get(action.ino)
        if node is None or not node.names:
            return
        target, temp = node.target, self._temp_name(entry)
        owner, times = (node.uid, node.gid), (node.atime_ns, node.mtime_ns)

        def call() -> copying.Committed:
            with self._source.directory(action.slot.parent) as fd:
                try:
                    os.symlink(target, temp, dir_fd=fd)
                except FileExistsError:
                    pass
                if os.geteuid() == 0:
                    os.chown(temp, *owner, dir_fd=fd, follow_symlinks=False)
                os.utime(temp, ns=times, dir_fd=fd, follow_symlinks=False)
                os.rename(temp, action.slot.name, src_dir_fd=fd, dst_dir_fd=fd)
                copying.sync_directory(fd)
                return copying.committed_as(
                    os.stat(action.slot.name, dir_fd=fd, follow_symlinks=False)
                )

        made = await self._source.work(call)
        self._tree.identify(node, made.origin)
        node.place = action.slot
        self._tree.saw_name(action.slot, made.status)
        self._tree.save(node)

    async def _attributes(self, entry: Entry) -> None:
        node = self._tree.nodes.get(entry.action.ino)
        if node is None or node.origin is None or node.place is None:
            return
        place = (node.ino, node.place, node.origin)
        changes, xattrs = self._wanted_attributes(node), dict(node.xattrs)

        def call() -> Signature | None:
            try:
                with self._source.object(*place) as path:
                    copying.dress(path, changes, xattrs)
                    return copying.committed_as(os.stat(path)).signature
            except OSError as error:
                if is_trouble(error) and error.errno != errno.ESTALE:
                    raise
                return None  # gone, or replaced: there is nothing to bring up to date

        signature = await self._source.work(call)
        if signature and node.life and node.life.committed == node.life.version:
            node.signature = signature
        self._tree.save(node)

    def _wanted_attributes(self, node: Node) -> Changes:
        if node.blob is not None:
            return like(self._tier.path(node.blob).stat())
        return Changes(node.mode, node.uid, node.gid, node.atime_ns, node.mtime_ns)

    def _temp_name(self, entry: Entry) -> bytes:
        # Two mounts may publish into one directory at the same time, so the tag tells them apart.
        return HIDDEN + self._tag + f"-{entry.action.ino:x}-{entry.seq}.tmp".encode()

    def _remove(self, slot: Slot) -> None:
        try:
            with self._source.directory(slot.parent) as fd:
                os.unlink(slot.name, dir_fd=fd)
                copying.sync_directory(fd)
        except FileNotFoundError:
            pass

    def _sync(self, *parents: int) -> None:
        for parent in set(parents):
            with self._source.directory(parent) as fd:
                copying.sync_directory(fd)


def _sentence(error: OSError) -> str:
    name = errno.errorcode.get(error.errno or 0, "error")
    return f"the shared file system answers {name} ({error.strerror})"
