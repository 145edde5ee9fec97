"""The register of a home: names of directories that the shared file system does not have yet. Pure.

Soft state: an entry that is not registered again within `EXPIRE_S` is forgotten, and a home that
lost everything is told everything again. Of two nodes that speak of one name, the greater rank
counts (`messages.Entry.rank`). A name that was settled keeps its last rank for a while, so that a
node that was away does not bring back what others have replaced or deleted meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sortedcontainers import SortedDict

from cachexfs.peers.messages import Entry, Kind, Replica, Settled

EXPIRE_S = 90.0
REFRESH_S = 20.0
"""How often a node registers again what it has: within a connection's `server.IDLE_S` too."""
BURIED_S = 3600.0
"""How long the last rank of a settled name is remembered."""
MAX_ENTRIES = 500_000
"""About a kilobyte each with the checksums of a file of 800 MiB."""
MAX_BYTES = 1 << 30
"""Half a million usual entries; what an entry may hold is bounded by a frame's header only."""
LISTED_BYTES = 1 << 20
"""A part of a listing is cut here, so that its header stays small."""


class Key(NamedTuple):
    """A directory: of which shared file system, and its inode number there."""

    volume: str
    directory: int


class Outcome(NamedTuple):
    """`beaten_by`: what counts instead of the new entry. `displaced`: what counted before it."""

    beaten_by: Entry | None = None
    displaced: Entry | None = None


@dataclass
class _Held:
    entry: Entry
    until_s: float


@dataclass(frozen=True)
class _Buried:
    """The last entry of a name, and since when the shared file system agrees on it."""

    rank: tuple[int, str]
    kind: Kind
    done_ns: int
    until_s: float


class Full(Exception):
    """There is no room for more entries."""


class Register:
    """Entries by directory and name."""

    def __init__(self, max_entries: int = MAX_ENTRIES, max_bytes: int = MAX_BYTES) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._names: dict[Key, SortedDict[bytes, _Held]] = {}
        self._buried: dict[tuple[Key, bytes], _Buried] = {}
        self._count = 0
        self._bytes = 0
        self._sweep_at_s = 0.0

    def __len__(self) -> int:
        return self._count

    def put(self, key: Key, entry: Entry, now_s: float, *, by_owner: bool = True) -> Outcome:
        """Take an entry in, unless one of another node counts. Raises `Full`.

        Without `by_owner` a holder speaks for an owner that is silent: of a name that the owner
        itself has settled or deleted since, it may not know.
        """
        self._sweep(now_s)
        held = self._names.get(key, {}).get(entry.name)
        others = held is not None and held.entry.replica.owner != entry.replica.owner
        if held is not None and others and held.until_s > now_s and held.entry.rank > entry.rank:
            return Outcome(beaten_by=held.entry)
        # What a node says later of its own name counts: its next daemon may have earlier stamps.
        buried = self._buried.get((key, entry.name))
        is_known = held is not None and not others and held.entry.rank == entry.rank
        if buried and not by_owner and not is_known and buried.rank >= entry.rank:
            return Outcome(beaten_by=gravestone(key, entry.name, *buried.rank, buried.kind))
        if buried and buried.rank > entry.rank and buried.rank[1] != entry.replica.owner:
            return Outcome(beaten_by=gravestone(key, entry.name, *buried.rank, buried.kind))
        self._set(key, entry, now_s)
        return Outcome(displaced=held.entry if held is not None and others else None)

    def forget(self, key: Key, name: bytes, stamp: int, now_s: float, done_ns: int = 0) -> None:
        """The shared file system agrees on a name, as far as entries up to `stamp` go.

        It does since `done_ns`, on the clock that nodes share.
        """
        names = self._names.get(key)
        held = names.get(name) if names is not None else None
        if names is None or held is None or held.entry.stamp > stamp:
            return
        rank, kind = held.entry.rank, held.entry.replica.kind
        self._buried[key, name] = _Buried(rank, kind, done_ns, now_s + BURIED_S)
        if len(self._buried) > self._max_entries:
            del self._buried[next(iter(self._buried))]
        self._drop(key, name)

    def met(self, key: Key, owner: str, settled: Settled) -> Entry | None:
        """What another node has of a name that `owner` has settled out of the reach of this home.

        Neither can have known of the other, as far as each closed before the other one was done:
        who closes later has the other's content from the shared file system.
        """
        held = self._names.get(key, {}).get(settled.name)
        if held is not None:
            is_others = held.entry.replica.owner != owner
            return held.entry if is_others and held.entry.stamp < settled.done_ns else None
        buried = self._buried.get((key, settled.name))
        if buried is None or buried.rank[1] == owner:
            return None
        is_meanwhile = buried.rank[0] < settled.done_ns and settled.stamp < buried.done_ns
        return gravestone(key, settled.name, *buried.rank, buried.kind) if is_meanwhile else None

    def find(self, key: Key, name: bytes, now_s: float) -> Entry | None:
        """What counts for a name."""
        held = self._names.get(key, {}).get(name)
        return held.entry if held is not None and held.until_s > now_s else None

    def count_in(self, key: Key) -> int:
        """How many names of a directory are known, those that are about to expire included."""
        return len(self._names.get(key, ()))

    def listing(self, key: Key, after: bytes, now_s: float) -> tuple[list[Entry], bool]:
        """Entries of a directory by name, beyond `after`; whether more follow."""
        entries, size_bytes = list[Entry](), 0
        for entry in self._beyond(key, after, now_s):
            if size_bytes >= LISTED_BYTES:
                return entries, True
            entries.append(entry)
            size_bytes += weight(entry)
        return entries, False

    def _beyond(self, key: Key, after: bytes, now_s: float) -> Iterator[Entry]:
        names = self._names.get(key)
        if names is None:
            return
        for name in names.irange(minimum=after, inclusive=(not after, True)):
            if names[name].until_s > now_s:
                yield names[name].entry

    def _set(self, key: Key, entry: Entry, now_s: float) -> None:
        names = self._names.get(key)
        held = names.get(entry.name) if names is not None else None
        more_bytes = weight(entry) - (weight(held.entry) if held is not None else 0)
        more = 0 if held is not None else 1
        if self._bytes + max(0, more_bytes) > self._max_bytes:
            raise Full
        if self._count + more > max(self._count, self._max_entries):
            raise Full
        self._count += more
        self._bytes += more_bytes
        self._names.setdefault(key, SortedDict())[entry.name] = _Held(entry, now_s + EXPIRE_S)

    def _drop(self, key: Key, name: bytes) -> None:
        self._bytes -= weight(self._names[key].pop(name).entry)
        self._count -= 1
        if not self._names[key]:
            del self._names[key]

    def _sweep(self, now_s: float) -> None:
        """Forget what has expired, every now and then."""
        is_full = self._count >= self._max_entries or self._bytes >= self._max_bytes
        if now_s < self._sweep_at_s and not is_full:
            return
        self._sweep_at_s = now_s + EXPIRE_S / 3
        for key, names in list(self._names.items()):
            for name in [name for name, held in names.items() if held.until_s <= now_s]:
                self._drop(key, name)
        for place in [place for place, buried in self._buried.items() if buried.until_s <= now_s]:
            del self._buried[place]


def gravestone(key: Key, name: bytes, stamp: int, owner: str, kind: Kind) -> Entry:
    """The entry of a name that was settled, as far as it is still known."""
    replica = Replica(
        volume=key.volume, path=name, kind=kind, owner=owner, version=stamp,
        closed_at_ns=min(stamp, 1 << 62),
    )  # fmt: skip
    return Entry(name=name, stamp=stamp, replica=replica)


def weight(entry: Entry) -> int:
    """About what an entry takes, on the wire or in memory, in bytes."""
    replica = entry.replica
    texts = (replica.crcs, replica.path, replica.target, replica.volume, replica.job, entry.address)
    attributes = (*replica.xattrs, *replica.xattrs.values())
    return 512 + sum(map(len, texts)) + sum(map(len, attributes)) + sum(map(len, entry.holders))
