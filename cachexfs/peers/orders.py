"""What an owner orders of one of its peers, and how an order ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from cachexfs.peers import messages as m
from cachexfs.peers.ahead import NOTHING, Sent


@dataclass(frozen=True, eq=False)
class Put:
    """Store this version of a path.

    `open_content` returns a fresh descriptor to read the content from (the link closes it), or None
    when this content does not exist any more. It is called in the event loop and must not block;
    reading the descriptor must not wait for a disk either unless `in_memory` is False. Not called
    for what has no content. `sent` is what went ahead, and `on_changed` is called with how many of
    those chunks the peer needs again.
    """

    replica: m.Replica
    open_content: Callable[[], int | None] = lambda: None
    in_memory: bool = True
    sent: Sent = NOTHING
    on_changed: Callable[[int], None] = lambda chunks: None


@dataclass(frozen=True, eq=False)
class Rename:
    """`messages.Rename`."""

    volume: str
    old: bytes
    new: bytes
    exchange: bool = False

    def numbered(self, order_id: int) -> m.Rename:
        """As a message."""
        return m.Rename(order_id, self.volume, self.old, self.new, self.exchange)


@dataclass(frozen=True, eq=False)
class Unlink:
    """`messages.Unlink`."""

    volume: str
    path: bytes
    at_ns: int

    def numbered(self, order_id: int) -> m.Unlink:
        """As a message."""
        return m.Unlink(order_id, self.volume, self.path, self.at_ns)


@dataclass(frozen=True, eq=False)
class Link:
    """`messages.Link`."""

    volume: str
    old: bytes
    new: bytes

    def numbered(self, order_id: int) -> m.Link:
        """As a message."""
        return m.Link(order_id, self.volume, self.old, self.new)


@dataclass(frozen=True, eq=False)
class Attrs:
    """`messages.Attrs`."""

    volume: str
    path: bytes
    mode: int
    uid: int
    gid: int
    atime_ns: int
    mtime_ns: int
    xattrs: dict[bytes, bytes] = field(default_factory=dict)

    def numbered(self, order_id: int) -> m.Attrs:
        """As a message."""
        return m.Attrs(
            order_id, self.volume, self.path, self.mode, self.uid, self.gid,
            self.atime_ns, self.mtime_ns, self.xattrs,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Durable:
    """`messages.Durable`."""

    volume: str
    path: bytes
    version: int

    def numbered(self, order_id: int) -> m.Durable:
        """As a message."""
        return m.Durable(order_id, self.volume, self.path, self.version)


Order = Put | Rename | Unlink | Link | Attrs | Durable


@dataclass(frozen=True)
class Outcome:
    """How an order ended. `code` and `detail` say why, where it was not "acked"."""

    kind: Literal["acked", "dropped", "refused"]
    code: str = ""
    detail: str = ""


ACKED = Outcome("acked")
GONE = Outcome("dropped", "gone", "the content was superseded or deleted before it was sent")
CHANGED = Outcome("dropped", "changed", "the content does not match its checksums any more")
