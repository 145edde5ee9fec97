"""Tells the homes which names this node has that the shared file system has not yet.

These are exactly the names for which the tree has a binding: so the register is a mirror of the
bindings, kept by looking at them again whenever one changes, and made anew from them for a home
that lost it. A file that is open is not told of before it settles; what was told of its last
content stays until then.

A change is told before the close, rename or removal that made it is answered, unless the homes do
not answer within `TOLD_S`: then it is told when they do.
"""

from __future__ import annotations

import contextlib
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

import msgspec
import trio

from cachexfs.durability.actions import Slot
from cachexfs.durability.states import State
from cachexfs.peers import messages as m
from cachexfs.peers.catalogue import NUMBERLESS, Catalogue
from cachexfs.peers.homes import WAIT_S, Homes
from cachexfs.peers.register import REFRESH_S
from cachexfs.peers.waking import in_time
from cachexfs.ram.node import Node
from cachexfs.ram.tree import GONE, Binding, Tree
from cachexfs.status.report import Problem

LATER_S = 0.1
"""Holders and commits are told so much later, many in one message: a save of a thousand small files
has a message for each close, and few others."""
AT_ONCE = 256
"""Entries in one message at most."""
TOLD_S = 2 * WAIT_S
"""The longest that a close waits: for the round that is under way when it comes, in which a home
may be found dead, and for its own."""
ROUNDS = 3
"""How often a change that others' clocks are ahead of is told again with a later stamp."""
REMEMBERED_CONFLICTS = 16
REMEMBERED_FILES = 4096
"""Files that are done, and of which a home that comes back may say that others wrote them too."""

T = TypeVar("T")
log = logging.getLogger(__name__)


class _Told(NamedTuple):
    """What the homes were told of a name last, and under which directory."""

    directory: int
    entry: m.Entry


class _Done(NamedTuple):
    """A file that was told of, and since when the shared file system has it."""

    entry: m.Entry
    done_ns: int


class Registrar:
    """`homes`, `address`: set when the mount serves. `give_up(slot)`: called when another node's
    change of a name counts instead of ours."""

    def __init__(
        self,
        tree: Tree,
        catalogue: Catalogue,
        node: str,
    ) -> None:
        self.homes: Homes | None = None
        self.address = ""
        self._tree = tree
        self._catalogue = catalogue
        self._node = node
        self.give_up: Callable[[Slot], None] = lambda slot: None
        self._told: dict[Slot, _Told] = {}
        self._without_number: set[Slot] = set()
        """Of these, the names in directories that the shared file system does not have yet."""
        self._stamps: dict[Slot, int] = {}
        self._new: set[Slot] = set()
        self._again: set[Slot] = set()
        self._done_ns: dict[Slot, int] = {}
        """Since when the shared file system agrees on names that the homes still have."""
        self._done: OrderedDict[tuple[int, bytes], _Done] = OrderedDict()
        self._dirty: dict[Slot, None] = {}
        self._later: dict[Slot, None] = {}
        self._has_later = trio.Event()
        self._lost: dict[int, list[tuple[bytes, int]]] = {}
        self._noted = self._settled = 0
        self._wake = trio.Event()
        self._has_settled = trio.Event()
        self._conflicts: deque[str] = deque(maxlen=REMEMBERED_CONFLICTS)

    async def run(self) -> None:
        """Tell the homes until cancelled."""
        for node in list(self._tree.nodes.values()):
            for slot in node.names:
                self.look(slot)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._refresh)
            nursery.start_soon(self._tell_later)
            while True:
                await self._wake.wait()
                self._wake = trio.Event()
                await self._tell_dirty()

    # --- what others tell -----------------------------------------------------------------------

    def changed(self, slot: Slot) -> None:
        """A program changed what a name stands for, or settled it."""
        self._stamps[slot] = max(self._tree.clock.now_ns(), self._stamps.get(slot, 0) + 1)
        self._new.add(slot)
        self.look_now(slot)

    def bound(self, slot: Slot, is_other: bool) -> None:
        """A binding was set or released; `is_other`: the name stands for something else now."""
        if is_other:
            self.changed(slot)
            self._look_below(slot)
        else:
            told = self._told.get(slot)
            if told is not None and self._tree.binding(slot) is None:
                self._done_ns[slot] = self._tree.clock.now_ns()
            if told is not None and told.entry.replica.kind == "gone":
                self.look_now(slot)  # until then nobody sees what is made there on the source
            else:
                self.look(slot)
            self._look_below(slot)

    def _look_below(self, slot: Slot) -> None:
        """A directory may have been made or moved there: what is in it is known otherwise now, by
        its number as soon as it has one.

        It stays known by the other key for a while, to those who have not heard of the directory.
        """
        if self._without_number:
            below = {told for told in self._without_number if told in self._told}
            self._without_number = below
            for told in below:
                self.look_now(told)

    def look(self, slot: Slot) -> None:
        """There may be news of a name for which nobody waits: told soon, together with others."""
        self._later[slot] = None
        self._has_later.set()

    def look_now(self, slot: Slot) -> None:
        """There may be news of a name, and `told` waits for it."""
        self._dirty[slot] = None
        self._noted += 1
        self._wake.set()

    async def told(self) -> None:
        """Return when the homes know all that was changed so far, or `TOLD_S` has passed."""
        wanted = self._noted

        async def settled() -> None:
            while self._settled < wanted:
                await self._has_settled.wait()

        with contextlib.suppress(trio.TooSlowError):
            await in_time(settled, TOLD_S)

    async def confirm(self, slots: Iterable[Slot]) -> None:
        """Tell of names again: those of which another node has closed a later version are given up.

        Waits for the homes as `told` does.
        """
        for slot in [slot for slot in slots if slot in self._told]:
            self._tell_again(slot)
        await self.told()

    def came_back(self, home: str) -> None:
        """A home answers again: it may have forgotten everything."""
        for slot, told in list(self._told.items()):
            if self.homes is not None and home in self.homes.of(told.directory):
                self._tell_again(slot)

    def tell_all(self) -> None:
        """The members have changed, and with them the homes."""
        for slot in self._told:
            self._tell_again(slot)

    def _tell_again(self, slot: Slot) -> None:
        self._again.add(slot)
        self.look_now(slot)

    def superseded(self, directory: int, entry: m.Entry) -> None:
        """Another node has changed a name since we told of it, or without hearing of us."""
        is_told = False
        for slot, told in list(self._told.items()):
            if (told.directory, told.entry.name) == (directory, entry.name):
                self._lose(slot, told.entry, entry)
                is_told = True
        done = self._done.get((directory, entry.name))
        if done is not None and not is_told and entry.stamp < done.done_ns:
            del self._done[directory, entry.name]
            self._report(
                done.entry, entry, "and neither heard of the other: what came last is there"
            )

    def problems(self) -> list[Problem]:
        """What a person should know."""
        return [
            Problem(
                "WrittenTwice", sentence, "let one node write a path; the last close is what counts"
            )
            for sentence in self._conflicts
        ]

    # --- telling --------------------------------------------------------------------------------

    async def _refresh(self) -> None:
        while True:
            await trio.sleep(REFRESH_S)
            self.tell_all()

    async def _tell_later(self) -> None:
        while True:
            await self._has_later.wait()
            await trio.sleep(LATER_S)
            self._has_later = trio.Event()
            self._dirty.update(self._later)
            self._later.clear()
            self._wake.set()

    async def _tell_dirty(self) -> None:
        noted, dirty, self._dirty = self._noted, list(self._dirty), {}
        by_directory: dict[int, list[Slot]] = {}
        for slot in dirty:
            directory = self._catalogue.key_of(slot.parent)
            if directory is not None:
                by_directory.setdefault(directory, []).append(slot)
        async with trio.open_nursery() as nursery:
            for directory, slots in by_directory.items():
                nursery.start_soon(self._tell_directory, directory, slots)
            nursery.start_soon(self._withdraw_lost)
        self._settled = noted
        self._has_settled.set()
        self._has_settled = trio.Event()

    async def _withdraw_lost(self) -> None:
        """A home that has not heard why our entry counts no more would go on with it."""
        lost, self._lost = self._lost, {}
        for directory, entries in lost.items():
            for names in _portions(entries):
                assert self.homes is not None
                await self.homes.forget(directory, names)

    async def _tell_directory(self, directory: int, slots: list[Slot]) -> None:
        assert self.homes is not None
        self.homes.unsettle(directory)
        entries: dict[Slot, m.Entry] = {}
        settled: list[m.Settled] = []
        for slot in slots:
            entry, told = self._entry(slot), self._told.get(slot)
            is_told = told is not None and told == (directory, entry)
            if entry is not None and (not is_told or slot in self._again):
                entries[slot] = entry
            elif entry is None and self._tree.binding(slot) is None:
                done_ns = self._done_ns.get(slot) or self._tree.clock.now_ns()
                self._forget(slot)
                if told is not None:
                    settled.append(self._settle(directory, told.entry, done_ns))
            self._again.discard(slot)
        for some in _portions(list(entries.items())):
            await self._register(directory, dict(some))
        for those in _portions(settled):
            await self.homes.settle(directory, those)

    def _settle(self, directory: int, entry: m.Entry, done_ns: int) -> m.Settled:
        if entry.replica.kind == "file":
            self._done[directory, entry.name] = _Done(entry, done_ns)
            self._done.move_to_end((directory, entry.name))
            if len(self._done) > REMEMBERED_FILES:
                self._done.popitem(last=False)
        return m.Settled(entry.name, entry.stamp, done_ns, entry.replica.kind)

    async def _register(self, directory: int, entries: dict[Slot, m.Entry]) -> None:
        """Have the homes keep entries. A change of ours that is new counts, whatever the clocks."""
        assert self.homes is not None
        for _ in range(ROUNDS):
            new = self._new & entries.keys()
            self._told.update((slot, _Told(directory, e)) for slot, e in entries.items())
            if directory >= NUMBERLESS:
                self._without_number |= entries.keys()
            else:
                self._without_number -= entries.keys()
            kept = await self.homes.register(directory, list(entries.values()))
            self._new -= {slot for slot in new if slot.name not in kept.beaten_by}
            again: dict[Slot, m.Entry] = {}
            for slot, entry in entries.items():
                if (other := kept.beaten_by.get(slot.name)) is None:
                    continue
                if slot in new:
                    self._stamps[slot] = other.stamp + 1
                    again[slot] = msgspec.structs.replace(entry, stamp=other.stamp + 1)
                else:
                    self._lose(slot, entry, other)
            if not again:
                return
            entries = again

    def _forget(self, slot: Slot) -> None:
        self._told.pop(slot, None)
        self._stamps.pop(slot, None)
        self._new.discard(slot)
        self._done_ns.pop(slot, None)

    def _lose(self, slot: Slot, ours: m.Entry, theirs: m.Entry) -> None:
        told, binding = self._told.get(slot), self._tree.binding(slot)
        if told is None or told.entry.rank >= theirs.rank:
            return
        node = self._tree.nodes.get(binding.ino) if binding else None
        if node is not None and node.kind == "directory" and self._is_kept(node, theirs):
            return
        if node is not None and node.life is not None and node.state is State.OPEN:
            return  # a program is writing it: its close will be the last one
        self._forget(slot)
        self._lost.setdefault(told.directory, []).append((slot.name, told.entry.stamp))
        self._wake.set()
        if binding is None or binding.ino == GONE:
            return
        self._report(ours, theirs, "which counts")
        log.info("%r is %s's now", ours.replica.path, theirs.replica.owner)
        self.give_up(slot)

    def _is_kept(self, directory: Node, theirs: m.Entry) -> bool:
        """Nodes that make one directory make the same one; and what is in it needs it."""
        return theirs.replica.kind == "directory" or bool(self._tree.bindings_in(directory.ino))

    def _report(self, ours: m.Entry, theirs: m.Entry, outcome: str) -> None:
        if theirs.replica.kind == "file" and ours.replica.kind == "file":
            path, other = ours.replica.path.decode(errors="replace"), theirs.replica.owner
            order = "and later on" if theirs.rank > ours.rank else "and before on"
            self._conflicts.append(f"{path}: closed here, {order} {other}, {outcome}")

    # --- entries --------------------------------------------------------------------------------

    def _entry(self, slot: Slot) -> m.Entry | None:
        """What to tell of a name; None for nothing, or nothing new."""
        binding = self._tree.binding(slot)
        if binding is None:
            return None
        replica, node = self._replica(slot, binding)
        if replica is None:
            told = self._told.get(slot)
            return told.entry if told is not None else None
        stamp = self._stamps.get(slot) or max(replica.closed_at_ns, 1)
        if node is None:
            return m.Entry(name=slot.name, stamp=stamp, replica=replica)
        return m.Entry(
            name=slot.name,
            stamp=stamp,
            replica=replica,
            address=self.address,
            ino=node.origin.ino if self._at(node, slot) and node.origin else node.ino,
            holders=node.life.holders() if node.life else [],
            at=self._at(node, slot),
        )

    def _replica(self, slot: Slot, binding: Binding) -> tuple[m.Replica | None, Node | None]:
        path = self._tree.path(slot)
        if binding.ino == GONE:
            stamp = self._stamps.get(slot, 1)
            return self._catalogue.gone(path, stamp), None
        node = self._tree.nodes.get(binding.ino)
        if node is None:
            return None, None
        if node.kind in ("directory", "symlink"):
            return self._catalogue.bare(node, path, 1), node
        is_settled = node.life is not None and node.state is not State.OPEN
        if not is_settled or node.blob is None:
            return None, node
        try:
            return self._catalogue.file(node, path), node
        except OSError:
            return None, node

    def _at(self, node: Node, slot: Slot) -> tuple[int, bytes] | None:
        """Where the shared file system has the present content, if under another name."""
        if node.place is None or node.place == slot or node.origin is None:
            return None
        if node.life is not None and node.state is not State.DURABLE:
            return None
        directory = self._catalogue.number_of(node.place.parent)
        return None if directory is None else (directory, node.place.name)


def _portions(items: list[T]) -> Iterable[list[T]]:
    return (items[begin : begin + AT_ONCE] for begin in range(0, len(items), AT_ONCE))
