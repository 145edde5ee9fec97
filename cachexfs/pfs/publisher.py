"""Bringing captured work to the shared file system: data in parallel, visibility in order.

One task per ledger entry. A `Publish` first copies its file to a hidden name (many at once, through
a limiter), then waits for its turn in the ledger, then commits; that of a small file does all of it
in its turn, in one visit of a thread. The other actions wait for their turn and act. Whatever the
file system answers, an entry is tried again, with backoff, until it is done or not wanted any more:
the only copy is never given up because a flush failed.

What is atomic: an entry, its bindings and its node change together, in one journal transaction,
between two awaits. What is left after a crash: the entry, which is carried out again; every action
therefore succeeds when it finds its own work done.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import trio

from cachexfs.durability.actions import Action, Publish, Slot
from cachexfs.durability.latency.sample import COPIED_IN_COMMIT_BYTES
from cachexfs.durability.ledger import Entry, Ledger
from cachexfs.pfs import copying
from cachexfs.pfs.deeds import Deeds
from cachexfs.pfs.fence import Adopted, Fence
from cachexfs.pfs.source import Source
from cachexfs.ram.journal import Journal
from cachexfs.ram.node import ROOT, Node
from cachexfs.ram.sums import Sums
from cachexfs.ram.tier import Tier
from cachexfs.ram.tree import Tree

FLUSHES = 4
"""Files copied at the same time: enough to keep several storage targets busy, few enough that the
first ones are safe soon."""

SMALL_BYTES = COPIED_IN_COMMIT_BYTES
"""Files up to this size are copied and committed at once: what they cost is the visits, not the
bytes, and with one file of a job at a time they leave the processors to the programs."""

_BUSY_S = 0.02
"""A program that closed a file less than this ago is taken to be in the midst of closing more."""

_GIVE_WAY_S = 1.0
"""The longest that publishing a file waits for that to end."""

_LOOK_EVERY_S = 0.005

_BACKOFF_FIRST_S, _BACKOFF_LAST_S = 0.1, 5.0


class Observer(Protocol):
    """Who wants to know. Called in the event loop; must not await."""

    async def clear_to_flush(self, ino: int, version: int) -> None:
        """Return when this version may be copied to the shared file system."""

    async def confirm(self, node: Node) -> None:
        """Find out whether a file's names are still ours, and give up those that are not."""

    def copied(self, node: Node, version: int) -> None:
        """This version is copied, or about to be, and its turn has come."""

    def committed(self, node: Node, version: int) -> None:
        """The shared file system holds this version, in place."""

    def overtaken(self, node: Node) -> None:
        """Others have brought this file there, and have changed it since."""


@dataclass
class _Errand:
    """An entry under way."""

    entry: Entry
    turn: trio.Event = field(default_factory=trio.Event)
    done: trio.Event = field(default_factory=trio.Event)
    flushed_bytes: int = 0
    wanted: bool = True
    copied: bool = False
    """Whether there may be something under its hidden name."""
    error: OSError | None = None


class Publisher:
    """Carries the ledger out. `run` must be running for anything to happen."""

    def __init__(
        self,
        tree: Tree,
        tier: Tier,
        sums: Sums,
        journal: Journal,
        source: Source,
        observer: Observer,
        *,
        tag: str,
        fence: Fence | None = None,
    ) -> None:
        self._tree = tree
        self._tier = tier
        self._sums = sums
        self._journal = journal
        self._source = source
        self._observer = observer
        self._fence = fence
        self._ledger = Ledger()
        self._errands: dict[int, _Errand] = {}
        self._publishing: dict[int, list[tuple[_Errand, Publish]]] = {}
        self._flushes = trio.CapacityLimiter(FLUSHES)
        self._last_close_s = -_BUSY_S
        self._in_haste = 0
        self._nursery: trio.Nursery | None = None
        self._deeds = Deeds(tree, tier, source, tag)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Carry out what the journal still holds, and all that is added, until cancelled."""
        async with trio.open_nursery() as self._nursery:
            for entry in self._journal.entries():
                self._start(self._ledger.append(entry.job, entry.action, entry.seq), copied=True)
            task_status.started()
            await trio.sleep_forever()

    # --- what others ask of it ------------------------------------------------------------------

    def add(self, job: str, action: Action) -> Entry:
        """Put an action at the end of a job's order; journaled when this returns."""
        entry = self._ledger.append(job, action)
        self._journal.add_entry(entry)
        if isinstance(action, Publish):
            self._last_close_s = trio.current_time()
        self._start(entry)
        return entry

    def is_idle(self, job: str, *touching: int | Slot) -> bool:
        """Whether nothing of this job, and nothing that touches these, is waiting."""
        return self._ledger.is_idle(job, *touching)

    def has_pending(self, ino: int) -> bool:
        """Whether anything of this inode is waiting, whoever's it is."""
        return self._ledger.is_touched(ino)

    def is_publishing(self, ino: int, version: int) -> bool:
        """Whether an entry for this very content is waiting."""
        return any(action.version == version for _, action in self._publishing.get(ino, []))

    async def finished(self, entry: Entry) -> None:
        """Return when an entry is done."""
        if errand := self._errands.get(entry.seq):
            with self.haste():
                await errand.done.wait()

    @contextlib.contextmanager
    def haste(self) -> Iterator[None]:
        """A program waits for something to be published: do not wait for programs meanwhile."""
        self._in_haste += 1
        try:
            yield
        finally:
            self._in_haste -= 1

    def flushed_bytes(self, ino: int) -> int:
        """How much of a file has reached the shared file system, under its hidden name."""
        return max((errand.flushed_bytes for errand, _ in self._publishing.get(ino, [])), default=0)

    def waiting(self) -> int:
        """How many entries are not carried out yet."""
        return len(self._errands)

    def held_up(self) -> list[tuple[Entry, OSError]]:
        """The entries that fail at the moment, oldest first, with the last error."""
        return [(e.entry, e.error) for e in self._errands.values() if e.error is not None]

    def retire(self, ino: int) -> None:
        """The file is deleted or has new content: copies of the old one are not wanted."""
        for errand, action in self._publishing.get(ino, []):
            errand.wanted = self._blob_of(action) is not None

    # --- one entry ------------------------------------------------------------------------------

    def _start(self, entry: Entry, *, copied: bool = False) -> None:
        errand = self._errands[entry.seq] = _Errand(entry, copied=copied)
        if isinstance(entry.action, Publish):
            self._publishing.setdefault(entry.action.ino, []).append((errand, entry.action))
        if self._ledger.is_ready(entry.seq):
            errand.turn.set()
        assert self._nursery is not None
        self._nursery.start_soon(self._carry_out, errand)

    async def _carry_out(self, errand: _Errand) -> None:
        action = errand.entry.action
        if isinstance(action, Publish):
            begun_s, is_small = trio.current_time(), self._is_small(action)
            if is_small or not self._has_ground(action):
                await errand.turn.wait()
            await self._give_way(begun_s + _GIVE_WAY_S)
            await self._observer.clear_to_flush(action.ino, action.version)
            await self._sum_first(action)
            if not is_small:
                await self._insist(errand, lambda: self._flush(errand, action))
                await errand.turn.wait()
            if (node := self._tree.nodes.get(action.ino)) is not None:
                self._observer.copied(node, action.version)
            await self._insist(errand, lambda: self._publish(errand, action, whole=is_small))
        else:
            await errand.turn.wait()
            await self._insist(errand, lambda: self._deeds.perform(errand.entry))
        self._close(errand)

    async def _sum_first(self, action: Publish) -> None:
        """A file that may change unseen is summed before it is copied: see `ram/sums.py`."""
        node = self._tree.nodes.get(action.ino)
        if node is not None and node.unsure:
            await self._sums.ensure(node, action.version)

    def _is_small(self, action: Publish) -> bool:
        blob = self._blob_of(action)
        try:
            return blob is None or self._tier.status(blob).st_size <= SMALL_BYTES
        except OSError:
            return False

    async def _give_way(self, at_most_until_s: float) -> None:
        """Let programs close the files that they are about to close: that costs them less then."""
        while not self._in_haste:
            now_s = trio.current_time()
            if now_s - self._last_close_s >= _BUSY_S or now_s >= at_most_until_s:
                return
            await trio.sleep(_LOOK_EVERY_S)

    def _has_ground(self, action: Publish) -> bool:
        """Whether the directory to copy into exists there; if not, its making comes first."""
        parent = self._tree.nodes.get(action.slots[0].parent)
        return parent is not None and (parent.ino == ROOT or parent.place is not None)

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
        self._forget_publishing(errand)
        for entry in self._ledger.done(errand.entry.seq):
            self._errands[entry.seq].turn.set()
        errand.done.set()

    def _forget_publishing(self, errand: _Errand) -> None:
        ino = errand.entry.action.ino
        left = [pair for pair in self._publishing.pop(ino, []) if pair[0] is not errand]
        if left:
            self._publishing[ino] = left

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
        parent, temp = action.slots[0].parent, self._deeds.temp_name(errand.entry)

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
            errand.copied = True
            path = self._tier.path(blob)
            with contextlib.suppress(copying.Stopped):
                await self._source.work(call)

    async def _publish(self, errand: _Errand, action: Publish, *, whole: bool) -> None:
        """Put a file in its place; `whole`: its bytes are still to be copied."""
        node = self._tree.nodes.get(action.ino)
        if node is not None and self._fence is not None and self._fence.is_old(node.settled_at_ns):
            await self._observer.confirm(node)  # a later close may have been told meanwhile
        blob = self._blob_of(action)
        if blob is None:
            await self._discard(errand, action)
            return
        node, path = self._tree.nodes[action.ino], self._tier.path(blob)
        temp, xattrs = self._deeds.temp_name(errand.entry), dict(node.xattrs)

        def call() -> copying.Committed:
            first, *others = action.slots
            with self._source.directory(first.parent) as fd, self._fenced(node, action) as check:
                if whole:
                    copying.flush(path, fd, temp, lambda done_bytes: True, sync=False)
                made = copying.commit(fd, temp, first.name, path, xattrs, check)
            for slot in others:
                self._deeds.link_over(first, slot, temp)
            return made

        errand.copied = True
        try:
            made = await self._source.work(call)
        except Adopted:
            await self._was_adopted(errand, node, action)
            return
        except FileNotFoundError:
            if self._blob_of(action) is None:  # deleted meanwhile
                await self._discard(errand, action)
                return
            if whole:
                raise
            # The hidden file is gone (another node removed the directory's content, or a crash
            # came between flush and commit): copy again, then commit.
            await self._flush(errand, action)
            raise
        self._source.health.well()
        self._published(node, action, made)

    def _fenced(self, node: Node, action: Publish) -> AbstractContextManager[Callable[[], None]]:
        """Against a commit by a holder; not for a version that was replaced here meanwhile."""
        is_present = node.life is not None and node.life.version == action.version
        if self._fence is None or not is_present:
            return contextlib.nullcontext(lambda: None)
        size_bytes = self._tier.status(node.blob).st_size if node.blob is not None else 0
        return self._fence.around_commit(node.settled_at_ns, size_bytes)

    async def _was_adopted(self, errand: _Errand, node: Node, action: Publish) -> None:
        """A holder has committed this version: what became of it since is left as it is."""
        slot, blob = action.slots[0], self._blob_of(action)
        status = (await self._source.work(lambda: self._source.look(slot)))[slot]
        ours = self._tier.status(blob) if blob is not None else None
        is_same = (
            status is not None
            and ours is not None
            and ((status.st_size, status.st_mtime_ns) == (ours.st_size, ours.st_mtime_ns))
        )
        if status is not None and is_same:
            self._published(node, action, copying.committed_as(status))
        else:
            with self._tree.transaction():
                node.names -= set(action.slots)
                self._observer.overtaken(node)
        await self._discard(errand, action)

    def _published(self, node: Node, action: Publish, made: copying.Committed) -> None:
        with self._tree.transaction():
            self._let_go(node, action.version)
            self._tree.identify(node, made.origin)
            node.signature, node.place = made.signature, action.slots[0]
            for slot in action.slots:
                self._tree.saw_name(slot, made.status)
            self._tree.save(node)
            self._observer.committed(node, action.version)

    def _let_go(self, node: Node, version: int) -> None:
        """The bytes of an old version were kept for its publishing only."""
        blob = node.retained.pop(version, None)
        if blob is not None:
            self._tree.after_commit(partial(self._tier.delete, blob))

    async def _discard(self, errand: _Errand, action: Publish) -> None:
        temp = Slot(action.slots[0].parent, self._deeds.temp_name(errand.entry))
        node = self._tree.nodes.get(action.ino)
        if node is not None and action.version in node.retained:
            with self._tree.transaction():
                self._let_go(node, action.version)
                self._tree.save(node)
        if not errand.copied:
            return

        def call() -> None:
            with contextlib.suppress(FileNotFoundError), self._source.directory(temp.parent) as fd:
                os.unlink(temp.name, dir_fd=fd)

        await self._source.work(call)


def _sentence(error: OSError) -> str:
    name = errno.errorcode.get(error.errno or 0, "error")
    return f"the shared file system answers {name} ({error.strerror})"
