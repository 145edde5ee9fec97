"""Bring the planned files from their holders into a sink: each whole, or not at all.

Every chunk is checked against the checksum of the version that was planned, so a file is of one
generation whoever its chunks come from. A holder that is damaged, stalls or goes away is left for
the next one, at the chunk where it failed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

from cachexfs.config import Config
from cachexfs.durability.checksum import CHUNK_BYTES, chunk_count
from cachexfs.errors import CacheXError, UsageError
from cachexfs.peers import paths, tls
from cachexfs.peers.handshake import HandshakeFailed
from cachexfs.peers.messages import Replica
from cachexfs.peers.reader import PeerFailed, PeerReader, ReplicaUnreadable, open_reader
from cachexfs.recovery.plan import Wanted, plan


class SinkRefused(CacheXError):
    """The sink does not take this path (something newer is there, a name that cannot be)."""


class Writer(Protocol):
    """A file on its way into a sink."""

    async def write_at(self, offset: int, data: bytes) -> None:
        """One chunk. Raises `OSError`."""

    async def finish(self) -> None:
        """The content is whole: show it under its name. Raises `OSError`."""

    async def abort(self) -> None:
        """Leave nothing of it."""


class Sink(Protocol):
    """Where recovered paths go. Each may raise `SinkRefused` or `OSError`."""

    async def directory(self, replica: Replica) -> None:
        """A directory, before what is in it and again after it: its attributes stay then."""

    async def symlink(self, replica: Replica) -> None:
        """A symbolic link."""

    async def begin(self, replica: Replica) -> Writer:
        """A file; nothing of it is visible before `Writer.finish`."""


class Holder(Protocol):
    """A peer that can be asked; `PeerReader` is one."""

    name: str

    async def volumes(self) -> list[str]:
        """Raises `PeerFailed`."""

    async def list(self, volume: str, prefix: bytes) -> Sequence[Replica]:
        """Raises `PeerFailed`."""

    def fetch(
        self, replica: Replica, first: int = 0, last: int | None = None
    ) -> AsyncIterator[tuple[int, bytes]]:
        """Raises `PeerFailed`, `ReplicaUnreadable`."""


@dataclass
class Result:
    """What came back. `damaged`, `refused`: path and why; `missing`: no holder answers any more."""

    volume: str = ""
    recovered: list[bytes] = field(default_factory=list)
    damaged: list[tuple[bytes, str]] = field(default_factory=list)
    missing: list[bytes] = field(default_factory=list)
    refused: list[tuple[bytes, str]] = field(default_factory=list)
    unreachable: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether everything that was planned is there."""
        return not (self.damaged or self.missing or self.refused)


Report = Callable[[str], None]
"""Takes one sentence at a time, for a person who waits."""


async def recover(
    holders: Sequence[Holder],
    volume: str | None,
    prefix: bytes,
    sink: Sink,
    report: Report = lambda sentence: None,
) -> Result:
    """Bring back what is held at `prefix` (empty: all) and below.

    Without a `volume` the only one held is meant. Raises `UsageError` when there are several, or
    none, and for a prefix that is no path.
    """
    try:
        paths.check_prefix(prefix)
    except paths.BadPath as error:
        raise UsageError(f"--path: {error}") from None
    run = _Recovery(holders, sink, report)
    await run.choose(volume)
    wanted = plan(await run.listings(prefix))
    for each in wanted:
        await run.bring(each)
    await run.finish_directories(wanted)
    return run.result


class _Recovery:
    def __init__(self, holders: Sequence[Holder], sink: Sink, report: Report) -> None:
        self._holders = {holder.name: holder for holder in holders}
        self._sink = sink
        self._report = report
        self.result = Result()

    async def choose(self, volume: str | None) -> None:
        """Settle which volume is meant."""
        self.result.volume = volume if volume is not None else await self._only_volume()

    async def _only_volume(self) -> str:
        found: set[str] = set()
        for holder in list(self._holders.values()):
            try:
                found.update(await holder.volumes())
            except PeerFailed as error:
                self._lose(holder.name, error)
        if not found:
            raise UsageError("no peer that answers holds anything to recover")
        if len(found) > 1:
            raise UsageError(f"several volumes are held, name one of: {', '.join(sorted(found))}")
        return found.pop()

    async def listings(self, prefix: bytes) -> dict[str, Sequence[Replica]]:
        """What each peer that answers holds."""
        listings: dict[str, Sequence[Replica]] = {}
        for holder in list(self._holders.values()):
            try:
                listings[holder.name] = await holder.list(self.result.volume, prefix)
            except PeerFailed as error:
                self._lose(holder.name, error)
        return listings

    async def bring(self, wanted: Wanted) -> None:
        """One path, into the sink or into the lists of what is wrong."""
        path = wanted.replica.path
        try:
            paths.check(path)
            why = await self._put(wanted)
        except (SinkRefused, OSError, paths.BadPath) as error:
            self.result.refused.append((path, str(error)))
            self._report(f"{path!r}: not written: {error}")
            return
        if why is None:
            self.result.recovered.append(path)

    async def finish_directories(self, wanted: Sequence[Wanted]) -> None:
        """Once more, innermost first: what was put in them has changed their times."""
        recovered = set(self.result.recovered)
        for each in reversed(wanted):
            if each.replica.kind == "directory" and each.replica.path in recovered:
                await self._sink.directory(each.replica)

    async def _put(self, wanted: Wanted) -> str | None:
        if wanted.replica.kind == "directory":
            await self._sink.directory(wanted.replica)
            return None
        if wanted.replica.kind == "symlink":
            await self._sink.symlink(wanted.replica)
            return None
        return await self._file(wanted)

    async def _file(self, wanted: Wanted) -> str | None:
        writer = await self._sink.begin(wanted.replica)
        try:
            why = await self._content(wanted, writer)
        except BaseException:
            await writer.abort()
            raise
        await (writer.finish() if why is None else writer.abort())
        return why

    async def _content(self, wanted: Wanted, writer: Writer) -> str | None:
        """Write every chunk; why not, when no holder is left that can."""
        replica, reasons = wanted.replica, []
        chunk = 0
        for name in wanted.holders:
            if name not in self._holders:
                continue
            chunk, why = await self._from_holder(self._holders[name], replica, chunk, writer)
            if why is None:
                return None
            reasons.append(why)
        return self._give_up(replica, reasons)

    async def _from_holder(
        self, holder: Holder, replica: Replica, first: int, writer: Writer
    ) -> tuple[int, str | None]:
        done = first
        try:
            if first < chunk_count(replica.size_bytes):
                async for index, data in holder.fetch(replica, first):
                    await writer.write_at(index * CHUNK_BYTES, data)
                    done = index + 1
        except PeerFailed as error:
            self._lose(holder.name, error)
            return done, str(error)
        except ReplicaUnreadable as error:
            self._report(str(error))
            return done, str(error)
        return done, None

    def _give_up(self, replica: Replica, reasons: list[str]) -> str:
        if not reasons:
            self.result.missing.append(replica.path)
            why = "no peer that holds it answers"
        else:
            why = "; ".join(reasons)
            self.result.damaged.append((replica.path, why))
        self._report(f"{replica.path!r}: not recovered: {why}")
        return why

    def _lose(self, name: str, error: PeerFailed) -> None:
        self._holders.pop(name, None)
        self.result.unreachable.append(name)
        self._report(str(error))


@asynccontextmanager
async def open_holders(
    config: Config, secret: bytes, addresses: Sequence[str] = (), report: Report = lambda _: None
) -> AsyncIterator[list[PeerReader]]:
    """Readers of the peers that answer: at `addresses`, or else the members of the configuration.

    Raises `CacheXError` when none does.
    """
    context = tls.contexts(config.security).client
    asked: list[tuple[str, str | None]] = [(address, None) for address in addresses]
    asked = asked or [(member.address, member.name) for member in config.peers]
    async with AsyncExitStack() as stack:
        readers = []
        for address, name in asked:
            reader = open_reader(address, config.node.name, secret, name=name, ssl_context=context)
            try:
                readers.append(await stack.enter_async_context(reader))
            except (PeerFailed, HandshakeFailed) as error:
                report(str(error))
        if not readers:
            raise CacheXError("no peer answers: " + ", ".join(address for address, _ in asked))
        yield readers
