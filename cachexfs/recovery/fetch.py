"""Bring the planned files from their holders into a sink: each whole, or not at all.

Every chunk is checked against the checksum of the version that was planned, so a file is of one
generation whoever its chunks come from. A holder that is damaged, stalls or goes away is left for
the next one, at the chunk where it failed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

import trio

from cachexfs.config import Config
from cachexfs.durability.checksum import CHUNK_BYTES, chunk_count
from cachexfs.errors import CacheXError, UsageError
from cachexfs.peers import paths, tls
from cachexfs.peers.handshake import HandshakeFailed
from cachexfs.peers.messages import Replica
from cachexfs.peers.reader import PeerFailed, PeerReader, ReplicaUnreadable, open_reader
from cachexfs.peers.refusal import Refusal
from cachexfs.peers.replicas import check
from cachexfs.recovery.generations import (
    INDEX_AT_MOST_BYTES,
    Checkpoint,
    checkpoints,
    judge,
    members,
    of_other_saves,
    shards_named_in,
)
from cachexfs.recovery.plan import Listings, Wanted, is_same_file, plan, versions_of
from cachexfs.recovery.ports import (
    AlreadyThere,
    Connect,
    Holder,
    Report,
    Sink,
    SinkRefused,
    Writer,
)
from cachexfs.recovery.result import Result

MOUNT_ANSWERS_S = 5.0
"""How long a mount may take to let itself be asked."""


async def recover(
    holders: Sequence[Holder],
    volume: str | None,
    prefix: bytes,
    sink: Sink,
    report: Report = lambda sentence: None,
    connect: Connect | None = None,
) -> Result:
    """Bring back what is held at `prefix` (empty: all) and below.

    With `connect` the mounts on the holders' nodes are asked too, for what they have in RAM: what
    was durable there when the shared file system fell silent may have no copy anywhere else.
    Without a `volume` the only one held is meant. Raises `UsageError` when there are several, or
    none, and for a prefix that is no path.
    """
    try:
        paths.check_prefix(prefix)
    except paths.BadPath as error:
        raise UsageError(f"--path: {error}") from None
    run = _Recovery(holders, sink, report)
    await run.choose(volume)
    if connect is not None:
        await run.add_mounts(connect)
    listings = await run.listings(prefix)
    wanted = plan(listings)
    indexed = await run.look_into(wanted, prefix)
    wanted = run.without_other_saves(wanted, indexed, listings)
    for each in wanted:
        await run.bring(each)
    await run.finish_directories(wanted)
    await run.judge(indexed)
    return run.result


class _Recovery:
    def __init__(self, holders: Sequence[Holder], sink: Sink, report: Report) -> None:
        self._holders = {holder.name: holder for holder in holders}
        self._sink = sink
        self._report = report
        self._linkable: list[Replica] = []
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

    async def add_mounts(self, connect: Connect) -> None:
        """The mounts that the peers know of are holders too."""
        found: set[tuple[str, str]] = set()
        for holder in list(self._holders.values()):
            try:
                found.update(await holder.mounts(self.result.volume))
            except PeerFailed as error:
                self._lose(holder.name, error)
        for node, address in sorted(found):
            if (mount := await connect(node, address)) is not None:
                self._holders[mount.name] = mount

    async def listings(self, prefix: bytes) -> Listings:
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
            check(wanted.replica)  # the peer did, if it is what it should be
            why = await self._put(wanted)
        except AlreadyThere:
            self.result.present.append(path)
            return
        except (SinkRefused, OSError, Refusal) as error:
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
        if old := next((r for r in self._linkable if is_same_file(r, wanted.replica)), None):
            await self._sink.link(wanted.replica, old.path)
            return None
        return await self._file(wanted)

    async def _file(self, wanted: Wanted) -> str | None:
        writer = await self._sink.begin(wanted.replica)
        try:
            why = await self._content(wanted, writer)
        except BaseException:
            await writer.abort()
            raise
        if why is not None:
            await writer.abort()
            return why
        await writer.finish()
        if wanted.is_linked:
            self._linkable.append(wanted.replica)
        return None

    # --- checkpoints ----------------------------------------------------------------------------

    async def look_into(self, wanted: Sequence[Wanted], prefix: bytes) -> dict[bytes, Indexed]:
        """The checkpoints that are wanted as such, each with the shards that its index names.

        Who asks for one shard by its path does not ask for the checkpoint.
        """
        by_path = {each.replica.path: each for each in wanted}
        found = {}
        for checkpoint in checkpoints(each.replica for each in wanted):
            if prefix and not (checkpoint.path + b"/").startswith(prefix + b"/"):
                continue
            named: set[bytes] = set()
            index = checkpoint.metadata
            if index is not None and index.size_bytes <= INDEX_AT_MOST_BYTES:
                memory = _Memory()
                if await self._content(by_path[index.path], memory) is None:
                    named = shards_named_in(bytes(memory.content))
            found[checkpoint.path] = Indexed(checkpoint, named)
        return found

    def without_other_saves(
        self, wanted: list[Wanted], indexed: Mapping[bytes, Indexed], listings: Listings
    ) -> list[Wanted]:
        """Leave out shards that would make a checkpoint a mix of two saves."""
        left_out = {}
        for checkpoint, named in indexed.values():
            versions = (
                versions_of(checkpoint.metadata.path, listings) if checkpoint.metadata else []
            )
            for name, why in of_other_saves(checkpoint, named, versions).items():
                left_out[checkpoint.files[name].path] = why
        for path, why in left_out.items():
            self.result.missing.append(path)
            self._report(f"{path!r}: left out: {why}")
        return [each for each in wanted if each.replica.path not in left_out]

    async def judge(self, indexed: Mapping[bytes, Indexed]) -> None:
        """Whether each checkpoint is whole where it is now; what was there already counts."""
        done = {*self.result.recovered, *self.result.present}
        left_out = set(self.result.missing)
        for checkpoint, named in indexed.values():
            there = set(done)
            for path in members(checkpoint, named):
                if path not in done | left_out and await self._sink.holds(path):
                    there.add(path)
            self.result.generations.append(judge(checkpoint, named, there))
        for sentence in self.result.sentences():
            self._report(sentence)

    # --- content --------------------------------------------------------------------------------

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


class Indexed(NamedTuple):
    """A checkpoint, and the names that its index names."""

    checkpoint: Checkpoint
    named: set[bytes]


class _Memory:
    """A `Writer` into memory."""

    def __init__(self) -> None:
        self.content = bytearray()

    async def write_at(self, offset: int, data: bytes) -> None:
        """One chunk; they come in order."""
        del self.content[offset:]
        self.content += data

    async def finish(self) -> None:
        """Nothing."""

    async def abort(self) -> None:
        """Nothing."""


class Opened(NamedTuple):
    """Readers of the peers that answer, and how to reach the mounts that they know of."""

    peers: list[PeerReader]
    connect: Connect


@asynccontextmanager
async def open_holders(
    config: Config, secret: bytes, addresses: Sequence[str] = (), report: Report = lambda _: None
) -> AsyncIterator[Opened]:
    """Connect to the peers that answer: at `addresses`, or else the members of the configuration.

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

        async def connect(node: str, address: str) -> PeerReader | None:
            reader = open_reader(address, config.node.name, secret, name=node, ssl_context=context)
            try:
                with trio.fail_after(MOUNT_ANSWERS_S):
                    mount = await stack.enter_async_context(reader)
            except (PeerFailed, HandshakeFailed, trio.TooSlowError):
                return None  # it may have ended: then what it had is at the peers
            mount.name = f"{node}'s memory"
            return mount

        yield Opened(readers, connect)
