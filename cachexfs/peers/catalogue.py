"""What files and changes of names look like on the wire.

Paths are those at the moment of the call: the line keeps the order in which things happened, so a
path is right when its turn comes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec

from cachexfs.durability.actions import (
    Action,
    Attributes,
    Link,
    Mkdir,
    Rename,
    Rmdir,
    Symlink,
    Unlink,
)
from cachexfs.peers import messages as m
from cachexfs.peers import orders
from cachexfs.ram.node import ROOT, Node
from cachexfs.ram.tier import Tier
from cachexfs.ram.tree import Tree

NUMBERLESS = 1 << 62
"""Keys of directories that have no number yet begin here; file systems give smaller numbers."""


class Catalogue:
    """Describes the nodes of one mount for its peers."""

    def __init__(
        self,
        tree: Tree,
        tier: Tier,
        node: str,
        volume: str,
        root_ino: Callable[[], int] = lambda: 0,
    ) -> None:
        self._root_ino = root_ino
        self._tree = tree
        self._tier = tier
        self._node = node
        self.volume = volume

    def version(self, node: Node) -> int:
        """Versions on the wire grow for a path whichever inode has it: the time of settling."""
        return node.settled_at_ns

    def file(self, node: Node, path: bytes, blob: int | None = None) -> m.Replica:
        """A captured file whose checksums are known; its content may be in another blob."""
        blob = node.blob if blob is None else blob
        assert blob is not None
        status = self._tier.path(blob).stat()
        return m.Replica(
            volume=self.volume,
            path=path,
            kind="file",
            owner=self._node,
            version=self.version(node),
            closed_at_ns=node.settled_at_ns,
            size_bytes=status.st_size,
            crcs=node.crcs if node.has_known_crcs else b"",
            mode=status.st_mode & 0o7777,
            uid=status.st_uid,
            gid=status.st_gid,
            atime_ns=status.st_atime_ns,
            mtime_ns=status.st_mtime_ns,
            xattrs=dict(node.xattrs),
            job=node.job,
            parent=self.number_of(node.slot.parent) or 0 if node.slot else 0,
        )

    def key_of(self, parent: int) -> int | None:
        """What the homes know a directory by: its number, or where it is to be made.

        Nodes that make one directory while the shared file system is silent come to the same key.
        """
        node = self._tree.nodes.get(parent)
        if (number := self.number_of(parent)) is not None or node is None or node.slot is None:
            return number
        above = self.key_of(node.slot.parent)
        return None if above is None else key_below(above, node.slot.name)

    def number_of(self, parent: int) -> int | None:
        """The number of a directory on the shared file system; None while it is not there."""
        if parent == ROOT:
            return self._root_ino() or None
        node = self._tree.nodes.get(parent)
        return node.origin.ino if node is not None and node.origin is not None else None

    def orders_for(self, action: Action) -> list[orders.Order]:
        """What a peer has to do about a change of names or attributes."""
        path, volume = self._tree.path, self.volume
        match action:
            case Rename(_, old, new, exchange):
                return [orders.Rename(volume, path(old), path(new), exchange)]
            case Unlink(_, slot) | Rmdir(_, slot):
                return [orders.Unlink(volume, path(slot), self._tree.clock.now_ns())]
            case Link(_, old, new):
                return [orders.Link(volume, path(old), path(new))]
            case Mkdir(ino, slot) | Symlink(ino, slot):
                return [orders.Put(self.bare(self._tree.nodes[ino], path(slot)))]
            case Attributes(ino):
                return self._changed(self._tree.nodes[ino])
        return []

    def _changed(self, node: Node) -> list[orders.Order]:
        """New attributes. A directory has no content: it is told of anew."""
        if node.kind == "directory" and node.names:
            return [orders.Put(self.bare(node, self._tree.path_of(node)))]
        if node.blob is None and (node.life is None or not node.life.holders()):
            return []
        return [self.attributes(node, path) for path in self._tree.paths_of(node)]

    def gone(self, path: bytes, at_ns: int) -> m.Replica:
        """A name that stands for nothing any more."""
        return m.Replica(
            volume=self.volume, path=path, kind="gone", owner=self._node, version=at_ns,
            closed_at_ns=at_ns,
        )  # fmt: skip

    def bare(self, node: Node, path: bytes, version: int | None = None) -> m.Replica:
        """A directory or a symbolic link, which has no content."""
        now = version or self._tree.clock.now_ns()
        return m.Replica(
            volume=self.volume,
            path=path,
            kind="symlink" if node.kind == "symlink" else "directory",
            owner=self._node,
            version=now,
            closed_at_ns=now,
            mode=node.mode & 0o7777,
            uid=node.uid,
            gid=node.gid,
            atime_ns=node.atime_ns or now,
            mtime_ns=node.mtime_ns or now,
            target=node.target,
            job=node.job,
        )

    def attributes(self, node: Node, path: bytes) -> orders.Attrs:
        """The attributes of a file under one of its names: its blob's, or what is kept of them."""
        if node.blob is None:
            owner, times = (node.uid, node.gid), (node.atime_ns, node.mtime_ns)
            mode = node.mode
        else:
            status = self._tier.path(node.blob).stat()
            mode, owner = status.st_mode, (status.st_uid, status.st_gid)
            times = (status.st_atime_ns, status.st_mtime_ns)
        return orders.Attrs(self.volume, path, mode & 0o7777, *owner, *times, dict(node.xattrs))


def key_below(above: int, name: bytes) -> int:
    """The key of a directory that has no number yet."""
    digest = hashlib.blake2b(name, digest_size=8, key=above.to_bytes(8, "big")).digest()
    return int.from_bytes(digest, "big") >> 2 | NUMBERLESS


_messages: msgspec.msgpack.Decoder[m.Rename | m.Unlink | m.Link] = msgspec.msgpack.Decoder(
    m.Rename | m.Unlink | m.Link
)


def from_message(packed: bytes) -> orders.Order:
    """An order that was kept as its message."""
    match _messages.decode(packed):
        case m.Rename(_, volume, old, new, exchange):
            return orders.Rename(volume, old, new, exchange)
        case m.Unlink(_, volume, path, at_ns):
            return orders.Unlink(volume, path, at_ns)
        case m.Link(_, volume, old, new):
            return orders.Link(volume, old, new)
