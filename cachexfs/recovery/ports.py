"""What recovery needs of others: who holds replicas, and where recovered paths go."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from cachexfs.errors import CacheXError
from cachexfs.peers.messages import Replica

Report = Callable[[str], None]
"""Takes one sentence at a time, for a person who waits."""


class SinkRefused(CacheXError):
    """The sink does not take this path (something newer is there, a name that cannot be)."""


class AlreadyThere(CacheXError):
    """The sink has this path: the same, or newer. Nothing is to be done."""


class Connect(Protocol):
    """Makes a holder of a mount, whose files in RAM can be asked for like a peer's replicas."""

    async def __call__(self, node: str, address: str) -> Holder | None:
        """None when it does not answer."""


class Writer(Protocol):
    """A file on its way into a sink."""

    async def write_at(self, offset: int, data: bytes) -> None:
        """One chunk. Raises `OSError`."""

    async def finish(self) -> None:
        """The content is whole: show it under its name. Raises `OSError`."""

    async def abort(self) -> None:
        """Leave nothing of it."""


class Sink(Protocol):
    """Where recovered paths go. Each may raise `SinkRefused`, `AlreadyThere` or `OSError`."""

    async def directory(self, replica: Replica) -> None:
        """A directory, before what is in it and again after it: its attributes stay then."""

    async def symlink(self, replica: Replica) -> None:
        """A symbolic link."""

    async def link(self, replica: Replica, old: bytes) -> None:
        """A second name for the file that was recovered at `old`."""

    async def begin(self, replica: Replica) -> Writer:
        """A file; nothing of it is visible before `Writer.finish`."""

    async def holds(self, path: bytes) -> bool:
        """Whether there is a file that can be read, recovered or not. Raises nothing."""


class Holder(Protocol):
    """A peer that can be asked; `PeerReader` is one."""

    name: str

    async def volumes(self) -> list[str]:
        """Raises `PeerFailed`."""

    async def mounts(self, volume: str) -> Sequence[tuple[str, str]]:
        """The mounts of a volume that it knows of: (node, address). Raises `PeerFailed`."""

    async def list(self, volume: str, prefix: bytes) -> Sequence[Replica]:
        """Raises `PeerFailed`."""

    def fetch(
        self, replica: Replica, first: int = 0, last: int | None = None
    ) -> AsyncIterator[tuple[int, bytes]]:
        """Raises `PeerFailed`, `ReplicaUnreadable`."""
