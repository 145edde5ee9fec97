"""Files of other nodes, read before they are whole here: chunks on demand, from whoever has them.

Each file has a sparse blob in the RAM tier and a set of the chunks that are there. A read waits for
the chunks that it touches, and no others; the next ones come meanwhile. Chunks are spread over all
that have the file: the owner, and the members that hold a replica. One that does not deliver a
chunk within its time is asked last from then on, and the chunk comes from the next; what waits for
other chunks does not notice. Every chunk is checked against its checksum before anybody sees it.

What was fetched is a copy: it is never published, and goes first when room is needed.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec
import trio

from cachexfs.durability.checksum import CHUNK_BYTES, chunk_count
from cachexfs.peers import messages as m
from cachexfs.peers.greeting import Identity
from cachexfs.peers.handshake import HandshakeFailed
from cachexfs.peers.reader import PeerFailed, PeerReader, ReplicaUnreadable, connect_reader
from cachexfs.ram.node import Node
from cachexfs.ram.remote import Remote
from cachexfs.ram.room import Room
from cachexfs.ram.tier import Tier
from cachexfs.ram.writing import write_all

LIMITS_S = (2.0, 10.0)
"""How long one that has a chunk may send nothing of it, in a first round and in a second one."""
PATIENCE_S = 5.0
"""How long a read waits for an owner that restarts, asking the homes again and again."""
_ASK_AGAIN_S = 0.3
PENALTY_S = 10.0
"""Who failed is asked last for so long."""
AHEAD = 4
"""Chunks that are fetched beyond the one that is read."""
AT_ONCE = 4
"""Chunks that come from one node at the same time, each by its own connection."""

_FAILED = (PeerFailed, ReplicaUnreadable, HandshakeFailed, trio.TooSlowError)
T = TypeVar("T")
log = logging.getLogger(__name__)


class _Holder(NamedTuple):
    """Who has a file: where, under which name, and by which number if it is the owner that told us
    (else by path)."""

    name: str
    address: str
    ino: int | None


@dataclass
class _Arrival:
    """A chunk on its way."""

    done: trio.Event = field(default_factory=trio.Event)
    data: bytes | None = None
    why: str = ""


@dataclass
class _Fetched:
    """One file. `present`: the chunks in the blob."""

    node: Node
    replica: m.Replica
    holders: list[_Holder]
    blob: int
    fd: int
    present: set[int] = field(default_factory=set)
    under_way: dict[int, _Arrival] = field(default_factory=dict)
    used_at_s: float = 0.0


class Fetching:
    """`addresses`: where each member's store answers; `ask_again`: what the homes say of a file by
    now; `stand_in`: who is known to hold what the shared file system has of a file, and
    `find_stand_in`, who is found when asked for. Raises OSError(EIO) when nobody delivers.
    """

    def __init__(
        self,
        tier: Tier,
        room: Room,
        identity: Identity,
        volume: str,
        addresses: Callable[[], dict[str, str]],
        ask_again: Callable[[Node], Awaitable[Remote | None]] | None = None,
        stand_in: Callable[[Node], Remote | None] = lambda node: None,
        find_stand_in: Callable[[Node], Awaitable[Remote | None]] | None = None,
    ) -> None:
        self._tier = tier
        self._room = room
        self._identity = identity
        self._volume = volume
        self._addresses = addresses
        self._ask_again = ask_again
        self._stand_in = stand_in
        self._find_stand_in = find_stand_in or _nobody
        self._files: dict[int, _Fetched] = {}
        self._idle: dict[str, list[PeerReader]] = {}
        self._limits: dict[str, trio.CapacityLimiter] = {}
        self._blamed_until_s: dict[str, float] = {}
        self._nursery: trio.Nursery | None = None
        self.chunks_from: dict[str, int] = {}

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Fetch until cancelled."""
        try:
            async with trio.open_nursery() as self._nursery:
                task_status.started()
                await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                for reader in [reader for idle in self._idle.values() for reader in idle]:
                    await reader.aclose()

    # --- what the mount asks --------------------------------------------------------------------

    async def open(self, node: Node) -> int:
        """A descriptor of the blob of a file, which need not be whole; the caller closes it."""
        return os.dup((await self._file(node)).fd)

    async def read(self, node: Node, offset: int, length: int) -> bytes:
        """Up to `length` bytes at `offset`."""
        file = await self._file(node)
        end = min(offset + length, file.replica.size_bytes)
        if offset >= end:
            return b""
        first, last = offset // CHUNK_BYTES, (end - 1) // CHUNK_BYTES
        for index in range(first, min(last + 1 + AHEAD, chunk_count(file.replica.size_bytes))):
            self._start(file, index)
        parts = [await self._part(file, index, offset, end) for index in range(first, last + 1)]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def copy_to(self, node: Node, target: int) -> None:
        """Write the whole content into a file."""
        file = await self._file(node)
        os.ftruncate(target, file.replica.size_bytes)
        for offset in range(0, file.replica.size_bytes, CHUNK_BYTES):
            write_all(target, offset, await self.read(node, offset, CHUNK_BYTES))

    async def find_replica(self, node: Node) -> bool:
        """Whether members hold what the shared file system has of a file and does not give."""
        return node.remote is None and await self._find_stand_in(node) is not None

    def forget(self, ino: int) -> None:
        """A file is not wanted any more."""
        if (file := self._files.pop(ino, None)) is not None:
            os.close(file.fd)
            self._tier.delete(file.blob)

    def give_up(self) -> None:
        """Room is needed: what was fetched can be fetched again."""
        for file in self._files.values():
            os.ftruncate(file.fd, 0)
            os.ftruncate(file.fd, file.replica.size_bytes)
            file.present.clear()

    # --- a file ---------------------------------------------------------------------------------

    async def _file(self, node: Node) -> _Fetched:
        file = self._files.get(node.ino)
        if file is None:
            replica, holders = await self._patiently(node, self._described)
            file = self._files.get(node.ino)
            if file is None:
                blob, fd = self._tier.create()
                os.ftruncate(fd, replica.size_bytes)
                file = self._files[node.ino] = _Fetched(node, replica, holders, blob, fd)
        file.used_at_s = trio.current_time()
        return file

    async def _patiently(self, node: Node, attempt: Callable[[Remote], Awaitable[T]]) -> T:
        """Try, and again with what the homes say by then. Raises OSError when it is of no use."""
        until_s = trio.current_time() + PATIENCE_S
        while True:
            remote = node.remote or self._stand_in(node)
            if remote is None:
                raise OSError(errno.EIO, "it is not another node's any more")
            try:
                return await attempt(remote)
            except OSError:
                if self._ask_again is None or node.remote is None or trio.current_time() > until_s:
                    raise
                await trio.sleep(_ASK_AGAIN_S)
                found = await self._ask_again(node)
                if found is None or node.remote is None or found.identity != node.remote.identity:
                    raise
                node.remote = found

    async def _described(self, remote: Remote) -> tuple[m.Replica, list[_Holder]]:
        """The file with its checksums: the owner knows them, if nobody has said them yet."""
        holders = self._holders(remote)
        replica = replica_of(remote, self._volume)
        if len(replica.crcs) == 4 * chunk_count(replica.size_bytes):
            return replica, holders
        why = "nobody serves it"
        for holder in holders:
            try:
                with trio.fail_after(LIMITS_S[-1]):
                    async with self._connection(holder, LIMITS_S[-1]) as reader:
                        found = await _describe(reader, holder, replica)
            except _FAILED as error:
                why = str(error) or "too slow"
                self._blame(holder)
                continue
            return msgspec.structs.replace(replica, crcs=found.crcs), holders
        raise _unreadable(remote, why)

    def _holders(self, remote: Remote) -> list[_Holder]:
        addresses = self._addresses()
        owner = (
            [_Holder(remote.owner, remote.address, remote.ino or None)] if remote.address else []
        )
        return owner + [
            _Holder(name, addresses[name], None) for name in remote.holders if name in addresses
        ]

    # --- chunks ---------------------------------------------------------------------------------

    async def _part(self, file: _Fetched, index: int, offset: int, end: int) -> bytes:
        """What a read wants of one chunk."""
        begin = max(offset, index * CHUNK_BYTES)
        until = min(end, (index + 1) * CHUNK_BYTES)
        while index not in file.present:
            arrival = self._start(file, index)
            await arrival.done.wait()
            if arrival.why:
                raise OSError(errno.EIO, arrival.why)
            if arrival.data is not None:
                base = index * CHUNK_BYTES
                return arrival.data[begin - base : until - base]
        return os.pread(file.fd, until - begin, begin)

    def _start(self, file: _Fetched, index: int) -> _Arrival:
        arrival = file.under_way.get(index)
        if arrival is None:
            arrival = _Arrival()
            if index in file.present:
                arrival.done.set()
            else:
                assert self._nursery is not None
                file.under_way[index] = arrival
                self._nursery.start_soon(self._bring, file, index, arrival)
        return arrival

    async def _bring(self, file: _Fetched, index: int, arrival: _Arrival) -> None:
        try:
            data = await self._patiently(file.node, partial(self._from_anybody, file, index))
            arrival.data = data
            if self._has_room(len(data)) and file in self._files.values():
                os.pwrite(file.fd, data, index * CHUNK_BYTES)
                file.present.add(index)
        except OSError as error:
            arrival.why = arrival.why or error.strerror or "not to be had"
            if arrival.data is not None:
                arrival.why = ""  # there is no room for it, which does not matter to who waits
        finally:
            file.under_way.pop(index, None)
            arrival.done.set()

    def _has_room(self, length: int) -> bool:
        return self._room.has(length)

    async def _from_anybody(self, file: _Fetched, index: int, remote: Remote) -> bytes:
        file.holders = self._holders(remote)
        why = "nobody serves it"
        for limit_s in LIMITS_S:
            for holder in self._in_turn(file.holders, index):
                try:
                    data = await self._from(holder, file.replica, index, limit_s)
                except _FAILED as error:
                    why = f"{holder.name}: {str(error) or 'too slow'}"
                    log.info("chunk %d of %r: %s", index, file.replica.path, why)
                    self._blame(holder)
                    continue
                self.chunks_from[holder.name] = self.chunks_from.get(holder.name, 0) + 1
                return data
        raise OSError(errno.EIO, why)

    def _in_turn(self, holders: Sequence[_Holder], index: int) -> Iterator[_Holder]:
        """All of them, each chunk beginning with another; those that failed of late come last."""
        now_s = trio.current_time()
        start = index % len(holders) if holders else 0
        turned = [*holders[start:], *holders[:start]]
        yield from sorted(
            turned, key=lambda holder: self._blamed_until_s.get(holder.address, 0.0) > now_s
        )

    def _blame(self, holder: _Holder) -> None:
        self._blamed_until_s[holder.address] = trio.current_time() + PENALTY_S

    async def _from(self, holder: _Holder, replica: m.Replica, index: int, limit_s: float) -> bytes:
        async with self._limit(holder.address), self._connection(holder, limit_s) as reader:
            return await reader.chunk(replica, index, holder.ino, limit_s)

    def _limit(self, address: str) -> trio.CapacityLimiter:
        return self._limits.setdefault(address, trio.CapacityLimiter(AT_ONCE))

    @asynccontextmanager
    async def _connection(self, holder: _Holder, limit_s: float) -> AsyncIterator[PeerReader]:
        """A connection, open within a time limit, kept afterwards unless the block fails."""
        idle = self._idle.setdefault(holder.address, [])
        reader = idle.pop() if idle else None
        if reader is not None and reader.is_stale:
            await reader.aclose()
            reader = None
        if reader is None:
            with trio.fail_after(limit_s):
                reader = await connect_reader(holder.address, self._identity, name=holder.name)
        try:
            yield reader
        except BaseException:
            with trio.CancelScope(shield=True):
                await reader.aclose()
            raise
        idle.append(reader)


async def _describe(reader: PeerReader, holder: _Holder, replica: m.Replica) -> m.Replica:
    if holder.ino is not None:
        return await reader.describe(replica, holder.ino)
    for held in await reader.list(replica.volume, replica.path):
        if held.path == replica.path and held.version == replica.version:
            return held
    raise ReplicaUnreadable(reader.name, replica.path, "is not held any more")


async def _nobody(node: Node) -> Remote | None:
    return None


def replica_of(remote: Remote, volume: str) -> m.Replica:
    """A remote file as its holders know it."""
    return m.Replica(
        volume=volume, path=remote.path, kind="file", owner=remote.owner, version=remote.version,
        closed_at_ns=remote.version, size_bytes=remote.size_bytes, crcs=remote.crcs,
        mode=remote.mode, uid=remote.uid, gid=remote.gid,
    )  # fmt: skip


def _unreadable(remote: Remote, why: str) -> OSError:
    return OSError(errno.EIO, f"{remote.path!r} of {remote.owner}: {why}")
