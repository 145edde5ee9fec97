"""Between `os.stat_result`, nodes, and the attributes that the kernel wants."""

from __future__ import annotations

import os
import stat

import pyfuse3

from cachexfs.ram.attributes import Changes, owned
from cachexfs.ram.node import Node, keep_status

TIMEOUT_S = 1.0
"""How long the kernel may go without asking again: the longest that another node's change of a
directory, or of a file that is not captured here, stays unseen. An open asks (`standing`)."""

BLOCK_BYTES = 1 << 20
"""`st_blksize`: the size of a FUSE request, which programs take for their buffers."""


def of_status(
    node: Node, status: os.stat_result, names: int | None = None
) -> pyfuse3.EntryAttributes:
    """Attributes of a node whose inode elsewhere has `status`; `names` replaces its link count."""
    entry = _entry(node.ino)
    entry.st_mode = status.st_mode
    entry.st_nlink = status.st_nlink if names is None else names
    entry.st_uid, entry.st_gid = status.st_uid, status.st_gid
    entry.st_rdev = status.st_rdev
    entry.st_size, entry.st_blocks = status.st_size, status.st_blocks
    entry.st_atime_ns = status.st_atime_ns
    entry.st_mtime_ns = status.st_mtime_ns
    entry.st_ctime_ns = status.st_ctime_ns
    return _with_own(entry, node) if node.ahead else entry


def of_node(node: Node) -> pyfuse3.EntryAttributes:
    """Attributes that only the node carries: of a local directory or symbolic link, or of a file
    of the shared file system that was removed there and is still open here."""
    entry = _entry(node.ino)
    entry.st_nlink = 2 if node.kind == "directory" else max(1, len(node.names))
    entry.st_size, entry.st_blocks = len(node.target) or 4096, 8
    if node.kind == "file" and node.signature is not None:
        entry.st_size = node.signature.size_bytes
        entry.st_blocks = -(-entry.st_size // 512)
    return _with_own(entry, node)


def _with_own(entry: pyfuse3.EntryAttributes, node: Node) -> pyfuse3.EntryAttributes:
    """With the attributes that the node itself carries."""
    entry.st_mode = node.mode
    entry.st_uid, entry.st_gid = node.uid, node.gid
    entry.st_atime_ns, entry.st_mtime_ns = node.atime_ns, node.mtime_ns
    entry.st_ctime_ns = node.ctime_ns
    return entry


def own(node: Node) -> Changes:
    """The attributes that the node itself carries. Only root can give files away."""
    changes = Changes(node.mode, atime_ns=node.atime_ns, mtime_ns=node.mtime_ns)
    return owned(changes, node.uid, node.gid)


def take_status(node: Node, status: os.stat_result) -> None:
    """Keep in the node what a status says, for when nothing else carries it."""
    if node.ahead:
        return
    keep_status(node, status)


def take_changes(node: Node, changes: Changes, now_ns: int) -> None:
    """Make changes to the attributes that the node itself carries."""
    if changes.mode is not None:
        node.mode = stat.S_IFMT(node.mode) | changes.mode & 0o7777
    node.uid = node.uid if changes.uid is None else changes.uid
    node.gid = node.gid if changes.gid is None else changes.gid
    node.atime_ns = node.atime_ns if changes.atime_ns is None else changes.atime_ns
    node.mtime_ns = node.mtime_ns if changes.mtime_ns is None else changes.mtime_ns
    node.ctime_ns = now_ns


def wanted(entry: pyfuse3.EntryAttributes, fields: pyfuse3.SetattrFields) -> Changes:
    """The changes, size apart, that a setattr request asks for."""
    return Changes(
        mode=entry.st_mode if fields.update_mode else None,
        uid=entry.st_uid if fields.update_uid else None,
        gid=entry.st_gid if fields.update_gid else None,
        atime_ns=entry.st_atime_ns if fields.update_atime else None,
        mtime_ns=entry.st_mtime_ns if fields.update_mtime else None,
    )


def _entry(ino: int) -> pyfuse3.EntryAttributes:
    entry = pyfuse3.EntryAttributes()
    entry.st_ino = ino
    entry.generation = 0
    entry.entry_timeout = entry.attr_timeout = TIMEOUT_S
    entry.st_blksize = BLOCK_BYTES
    return entry
