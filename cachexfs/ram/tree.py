"""The names and inodes of the mount: what the shared file system has, and what we add to it.

    name in a directory --> binding? --yes--> our node, or "gone"
                               |no
                               v
                       the shared file system --> its object --> node, by identity

A *binding* is a name for which we speak and the shared file system does not (yet). It goes when the
ledger entry that makes both agree is done. Identity (device, inode) ties an object there to the
node that we know it by, so that an inode number stays the same when a file moves from our RAM to
the shared file system.

Nothing here awaits, so every method is atomic for the event loop; and what is changed is journaled
before the method returns.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from cachexfs.clock import Clock
from cachexfs.durability.actions import Slot
from cachexfs.ram.journal import Journal
from cachexfs.ram.node import ROOT, Kind, Node, Origin, Signature
from cachexfs.ram.remote import Remote

GONE = 0
"""As the inode number of a binding: the name is gone here, whatever the source says."""

_SOURCE_BIT = 1 << 61
"""Inode numbers of objects that we only reflect are the source's with this bit, so that they are
the same after a restart; those that we give out ourselves stay below it."""


_NUMBERS = "numbers"
"""Key in the journal: every inode number below this one may have been given out."""

_BLOCK = 1024
"""Inode numbers that are reserved at a time, so that making a file does not write this down."""


_KINDS_ELSEWHERE: dict[str, Kind] = {"symlink": "symlink", "directory": "directory"}
_FORMATS = {"file": stat.S_IFREG, "symlink": stat.S_IFLNK, "directory": stat.S_IFDIR}


class Binding(NamedTuple):
    """What a name stands for, and the ledger entry after which the source agrees."""

    ino: int
    seq: int | None


class Tree:
    """All nodes and bindings. Read back from the journal when it is made."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.keeps_reflections = False
        """Whether nodes that are known only from the source are journaled too: they must be where
        the mount outlives the daemon, since the kernel goes on using their numbers."""
        self.nodes: dict[int, Node] = {node.ino: node for node in journal.nodes()}
        self.clock = Clock()
        """By which changes of contents and names are dated."""
        self.clock.heard(max((node.settled_at_ns for node in self.nodes.values()), default=0))
        self._bindings: dict[int, dict[bytes, Binding]] = {}
        self._origins = {n.origin: n.ino for n in self.nodes.values() if n.origin}
        self._holding = {n.ino for n in self.nodes.values() if n.kind == "directory"}
        self._seen: dict[int, dict[bytes, os.stat_result]] = {}
        self._published: dict[int, set[bytes]] = {}
        self._changes: dict[int, int] = {}
        self._change_count = 0
        self._noting: dict[int, list[dict[bytes, os.stat_result | None]]] = {}
        for slot, ino, seq in journal.bindings():
            self._bindings.setdefault(slot.parent, {})[slot.name] = Binding(ino, seq)
        ours = [ino + 1 for ino in self.nodes if ino < _SOURCE_BIT]
        self._next_ino = max([ROOT + 1, *ours, int(journal.get(_NUMBERS) or 0)])
        self._reserved = self._next_ino
        self._remote = {n.remote.identity: n.ino for n in self.nodes.values() if n.remote}
        self._guests = {
            slot: node.ino
            for node in self.nodes.values()
            if node.kind == "directory" and node.remote
            for slot in node.names
        }
        self.on_binding: Callable[[Slot, bool], None] = lambda slot, is_other: None
        """Called after a binding was set or released, with whether its name stands for something
        else than before."""
        self.is_spoken_of: Callable[[int], bool] = lambda ino: False
        """Whether the ledger still has something to do for an inode number, whose node may be
        forgotten by now."""
        self.nodes.setdefault(ROOT, Node(ino=ROOT, kind="directory"))

    @property
    def root(self) -> Node:
        """The node of the mount's root."""
        return self.nodes[ROOT]

    def transaction(self) -> AbstractContextManager[None]:
        """Make several changes one. Nothing inside may await."""
        return self._journal.transaction()

    def after_commit(self, call: Callable[[], None]) -> None:
        """Do what cannot be rolled back, once the changes under way are journaled."""
        self._journal.after_commit(call)

    # --- nodes ----------------------------------------------------------------------------------

    def new(self, kind: Kind, slot: Slot | None = None) -> Node:
        """A node of our own; it is journaled by `save`."""
        node = Node(ino=self._unused_number(), kind=kind, names={slot} if slot else set())
        self.nodes[node.ino] = node
        return node

    def _unused_number(self) -> int:
        """A number that no node ever had. The ledger, the kernel and the peers may still speak of
        nodes that are forgotten here: what is meant for one of them must not reach another one."""
        number, self._next_ino = self._next_ino, self._next_ino + 1
        if number + _BLOCK // 2 > self._reserved:  # early: the transaction may be rolled back
            self._reserve(number + _BLOCK)
        return number

    def _reserve(self, upto: int) -> None:
        def is_on_record() -> None:
            self._reserved = upto

        self._journal.set(_NUMBERS, str(upto))
        self._journal.after_commit(is_on_record)

    def known_as(self, origin: Origin) -> Node | None:
        """The node of an object on the shared file system, if it has one."""
        ino = self._origins.get(origin)
        return self.nodes.get(ino) if ino is not None else None

    def reflect(self, origin: Origin, kind: Kind, slot: Slot) -> Node:
        """The node of an object on the shared file system, found at `slot`."""
        node = self.known_as(origin)
        if node is None:
            node = Node(ino=self._reflected_ino(origin), kind=kind, origin=origin)
            self.nodes[node.ino] = node
            self._origins[origin] = node.ino
            self.changed(node.ino)  # there may have been another one with this number
            if self.keeps_reflections:
                node.names.add(slot)
                node.place = slot
                self.save(node)
        if node.kind == "directory":
            node.names = {slot}
        node.names.add(slot)
        node.place = slot
        return node

    def known_at(self, slot: Slot) -> Node | None:
        """What a name stood for on the shared file system when that was last known. Not quick."""
        for node in self.nodes.values():
            if slot in node.names and node.place == slot:
                return node
        return None

    def holds_ours(self, node: Node) -> bool:
        """Whether files of ours were ever in a directory: they are found only through it."""
        return bool(node.names) and node.ino in self._holding

    def made(self, origin: Origin, kind: Kind, slot: Slot) -> Node:
        """The node of an object that was just made there: never one that had its number before."""
        if (stale := self.known_as(origin)) is not None:
            self.identify(stale, None)
        return self.reflect(origin, kind, slot)

    def elsewhere(self, remote: Remote, slot: Slot) -> Node:
        """The node of what another node has and the shared file system has not, found at `slot`."""
        known = self._guest(slot) if remote.kind == "directory" else None
        known = known or self.nodes.get(self._remote.get(remote.identity, 0))
        if known is None or known.remote is None:
            known = self.new(_KINDS_ELSEWHERE.get(remote.kind, "file"))
        self.detach(known)
        self._remote[remote.identity] = known.ino
        known.remote = remote
        known.names = {slot}
        known.mode = _FORMATS[known.kind] | remote.mode
        known.uid, known.gid = remote.uid, remote.gid
        known.atime_ns, known.mtime_ns = remote.atime_ns, remote.mtime_ns
        known.ctime_ns, known.target = remote.mtime_ns, remote.target
        known.xattrs = dict(remote.xattrs)
        known.signature = Signature(remote.size_bytes, remote.mtime_ns)
        if known.kind == "directory":
            known.signature = None
            self._guests[slot] = known.ino
        if self.keeps_reflections:
            self.save(known)
        return known

    def _guest(self, slot: Slot) -> Node | None:
        """The directory of another node at `slot`, as it is known here until the shared file system
        has it: the same one, whoever of its makers is heard of."""
        node = self.nodes.get(self._guests.get(slot, 0))
        is_guest = node is not None and node.remote is not None and slot in node.names
        return node if is_guest else None

    def arrived(self, slot: Slot, origin: Origin) -> None:
        """The shared file system has a directory at `slot`: another node's, if one was told of."""
        if self.known_as(origin) is None and (guest := self._guest(slot)) is not None:
            self.detach(guest)
            self.identify(guest, origin)
            self.changed(guest.ino)

    def detach(self, node: Node) -> None:
        """A node does not stand for another node's file any more."""
        if node.remote is not None and self._remote.get(node.remote.identity) == node.ino:
            del self._remote[node.remote.identity]
        if node.kind == "directory":
            for slot in node.names:
                self._guests.pop(slot, None)
        node.remote = None

    def identify(self, node: Node, origin: Origin | None) -> None:
        """Tie a node to its object on the shared file system (or to none)."""
        if node.origin and self._origins.get(node.origin) == node.ino:
            del self._origins[node.origin]
        node.origin = origin
        if origin:
            self._origins[origin] = node.ino

    def save(self, node: Node) -> None:
        """Journal a node as it is."""
        self._journal.save_node(node)

    def drop(self, node: Node) -> None:
        """Forget a node."""
        self.identify(node, None)
        self.nodes.pop(node.ino, None)
        self._bindings.pop(node.ino, None)
        self._holding.discard(node.ino)
        self._seen.pop(node.ino, None)
        self._published.pop(node.ino, None)
        self._changes.pop(node.ino, None)
        self.detach(node)
        self._journal.drop_node(node.ino)

    def _reflected_ino(self, origin: Origin) -> int:
        ino = _SOURCE_BIT | (origin.ino & (_SOURCE_BIT - 1))
        # The same number on another device below the source, or of what stood there before.
        while ino in self.nodes or self.is_spoken_of(ino):
            ino += 1
        return ino

    # --- bindings -------------------------------------------------------------------------------

    def binding(self, slot: Slot) -> Binding | None:
        """What we say of a name; None where the shared file system speaks."""
        return self._bindings.get(slot.parent, {}).get(slot.name)

    def bindings_in(self, parent: int) -> dict[bytes, Binding]:
        """Every name of a directory for which we speak."""
        return dict(self._bindings.get(parent, {}))

    def bind(self, slot: Slot, node: Node, seq: int | None = None) -> None:
        """A name stands for `node`, which is journaled with it."""
        self._set(slot, Binding(node.ino, seq))
        node.names.add(slot)
        self._journal.save_node(node)
        self._save_parents(slot)

    def unbind(self, slot: Slot, node: Node, seq: int | None = None) -> None:
        """A name that stood for `node` is gone here."""
        node.names.discard(slot)
        self._set(slot, Binding(GONE, seq))
        self._journal.save_node(node)
        self._save_parents(slot)

    def settle(self, slot: Slot, seq: int) -> None:
        """Entry `seq` is done: a binding that waited for it goes."""
        binding = self.binding(slot)
        if binding and binding.seq == seq:
            self.release(slot)

    def release(self, slot: Slot) -> None:
        """The shared file system speaks for this name again."""
        del self._bindings[slot.parent][slot.name]
        if not self._bindings[slot.parent]:
            del self._bindings[slot.parent]
        self._journal.drop_binding(slot)
        if slot.parent in self._seen:
            self._published.setdefault(slot.parent, set()).add(slot.name)
        self.on_binding(slot, False)

    def _set(self, slot: Slot, binding: Binding) -> None:
        before = self.binding(slot)
        self._bindings.setdefault(slot.parent, {})[slot.name] = binding
        self._journal.save_binding(slot, *binding)
        self.on_binding(slot, before is None or before.ino != binding.ino)

    def _save_parents(self, slot: Slot) -> None:
        """A binding is found again after a restart only through its directories."""
        parent = self.nodes.get(slot.parent)
        while parent is not None and parent.ino != ROOT:
            self._journal.save_node(parent)
            self._holding.add(parent.ino)
            above = parent.slot
            parent = self.nodes.get(above.parent) if above else None

    # --- what the shared file system was last seen to have --------------------------------------

    def saw(
        self,
        parent: int,
        entries: dict[bytes, os.stat_result],
        told: frozenset[bytes] = frozenset(),
    ) -> None:
        """The whole content of a directory there. `told`: what was `published` before the look."""
        self._seen[parent] = entries
        if told and parent in self._published:
            self._published[parent] -= told

    def published(self, parent: int) -> frozenset[bytes]:
        """The names for which the source speaks again since a directory was seen whole: what was
        seen knows nothing of them."""
        return frozenset(self._published.get(parent, ()))

    def is_published(self, slot: Slot) -> bool:
        """Whether a name is one of those."""
        return slot.name in self._published.get(slot.parent, ())

    @contextmanager
    def noting(self, parent: int) -> Iterator[dict[bytes, os.stat_result | None]]:
        """What is made (its status) or removed (None) in a directory there meanwhile.

        A listing takes time, and what is changed while it is under way may or may not be in it.
        """
        changes: dict[bytes, os.stat_result | None] = {}
        self._noting.setdefault(parent, []).append(changes)
        try:
            yield changes
        finally:
            left = [other for other in self._noting[parent] if other is not changes]
            if left:
                self._noting[parent] = left
            else:
                del self._noting[parent]

    def changes_in(self, parent: int) -> int:
        """A number that is another one after each change of a directory there by us."""
        return self._changes.get(parent, 0)

    def changed(self, parent: int) -> None:
        """A directory there, or its attributes, were changed by us."""
        self._change_count += 1
        self._changes[parent] = self._change_count

    def saw_name(self, slot: Slot, status: os.stat_result | None) -> None:
        """One name of a directory there, if the directory was ever seen whole."""
        self.changed(slot.parent)
        for changes in self._noting.get(slot.parent, ()):
            changes[slot.name] = status
        entries = self._seen.get(slot.parent)
        if entries is None:
            return
        if status is None:
            entries.pop(slot.name, None)
        else:
            entries[slot.name] = status

    def seen(self, parent: int) -> dict[bytes, os.stat_result] | None:
        """What a directory had when it was last seen; None if it never was."""
        return self._seen.get(parent)

    # --- paths ----------------------------------------------------------------------------------

    def path(self, slot: Slot) -> bytes:
        """The path of a name below the mount's root, without a leading slash."""
        parts, parent = [slot.name], slot.parent
        while parent != ROOT:
            above = self.nodes[parent].slot if parent in self.nodes else None
            if above is None:
                parts.append(b"?")  # a directory that was removed under our feet
                break
            parts.append(above.name)
            parent = above.parent
        return b"/".join(reversed(parts))

    def path_of(self, node: Node) -> bytes:
        """The path of a node; empty for the root and for what has no name any more."""
        slot = node.slot
        return self.path(slot) if slot else b""

    def paths_of(self, node: Node) -> list[bytes]:
        """The paths of all names of a node, that of `path_of` first."""
        return [self.path(slot) for slot in sorted(node.names)]

    def captured(self) -> Iterator[Node]:
        """Every file that has a life, oldest inode number first."""
        return (self.nodes[ino] for ino in sorted(self.nodes) if self.nodes[ino].life)
