"""Extended attributes: those of files, and the virtual ones that tell how safe a file is."""

from __future__ import annotations

import errno
import json

from cachexfs.durability.states import State
from cachexfs.mount.errnos import answer
from cachexfs.mount.ports import Safety, Source
from cachexfs.ram.node import Node
from cachexfs.ram.tree import Tree

PREFIX = b"user.cachexfs."

_NEVER_KEPT = (b"system.posix_acl_", b"security.capability")
"""Access lists need the kernel's help, which is not asked for; the capability attribute is looked
up before every buffered write, and must be answered from memory."""


def is_never_kept(name: bytes) -> bool:
    """Whether no file of the mount ever has this attribute."""
    return name.startswith(_NEVER_KEPT)


class Xattrs:
    """Extended attributes of nodes. Raises OSError."""

    def __init__(
        self, tree: Tree, source: Source, safety: Safety, mountpoint: str, socket: str
    ) -> None:
        self._tree = tree
        self._source = source
        self._safety = safety
        self._control = json.dumps({"mountpoint": mountpoint, "socket": socket}).encode()

    async def get(self, node: Node, name: bytes) -> bytes:
        """One attribute."""
        if name.startswith(PREFIX):
            return self._virtual(node, name[len(PREFIX) :])
        if name.startswith(_NEVER_KEPT):
            raise answer(errno.ENODATA)
        if node.blob is None and node.place is not None:
            return await self._source.getxattr(node, name)
        if name not in node.xattrs:
            raise answer(errno.ENODATA)
        return node.xattrs[name]

    async def names(self, node: Node) -> list[bytes]:
        """The names of all attributes but the virtual ones, so that copies do not carry those."""
        if node.blob is None and node.place is not None:
            return sorted(await self._source.xattrs(node))
        return sorted(node.xattrs)

    async def set(self, node: Node, name: bytes, value: bytes | None) -> bool:
        """Set an attribute, or remove it with None; True when the node itself carries it."""
        if name.startswith(PREFIX):
            raise answer(errno.EPERM)
        if name.startswith(_NEVER_KEPT):
            raise answer(errno.EOPNOTSUPP)
        if node.blob is None and node.place is not None:
            await self._source.setxattr(node, name, value)
            return False
        if value is None and node.xattrs.pop(name, None) is None:
            raise answer(errno.ENODATA)
        if value is not None:
            node.xattrs[name] = value
        self._tree.save(node)
        return True

    def _virtual(self, node: Node, name: bytes) -> bytes:
        if name == b"control":
            return self._control
        files = self._files(node)
        if name == b"state":
            states = map(self._safety.state_of, files)
            return min(states, default=State.DURABLE).label.encode()
        if name == b"replicas":
            holders = {peer for file in files if file.life for peer in file.life.holders()}
            return ",".join(sorted(holders)).encode()
        if name == b"flushed_bytes":
            return str(sum(self._safety.flushed_bytes(file) for file in files)).encode()
        raise answer(errno.ENODATA)

    def _files(self, node: Node) -> list[Node]:
        """The captured files that a node stands for: itself, or those below a directory."""
        if node.kind != "directory":
            return [node]
        path = self._tree.path_of(node)
        below = path + b"/" if path else b""
        return [
            file
            for file in self._tree.captured()
            if file.names and self._tree.path_of(file).startswith(below)
        ]
