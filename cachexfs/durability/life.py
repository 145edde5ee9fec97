"""The life of a file: events in, effects out, no clock and no I/O.

Content has a version. The first write after the file settled (was closed, fsynced or renamed)
begins a new one; what a peer or the shared file system reports is about one version, and a report
about another one than the present changes nothing. So a state is claimed only for the bytes that a
reader would get now.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from cachexfs.durability.states import TABLE, Effect, State, Step

STORY_LENGTH = 64
"""Events that a file remembers: enough for a way with retries, bounded for a million files."""


class Written(NamedTuple):
    """The content changed."""


class Settled(NamedTuple):
    """The program closed, fsynced or renamed the file."""


class Acknowledged(NamedTuple):
    """Peer `peer` holds `version` on its disk."""

    peer: str
    version: int


class ReplicaLost(NamedTuple):
    """Peer `peer` holds nothing of this file any more."""

    peer: str


class Committed(NamedTuple):
    """The shared file system holds `version`, in place."""

    version: int


class Evicted(NamedTuple):
    """The RAM tier gave its copy up, or lost it."""


class Deleted(NamedTuple):
    """The last name is gone."""


Event = Written | Settled | Acknowledged | ReplicaLost | Committed | Evicted | Deleted


class IllegalEvent(Exception):
    """An event that cannot happen in this state. The life is unchanged."""


class Chapter(NamedTuple):
    """One line of a file's story."""

    at_s: float
    event: str
    state: State


@dataclass
class Life:
    """What is known of one file. `handle` is the only way to change it.

    `replicas`: the version that each peer holds; 0 where what it held was lost.
    """

    copies_wanted: int = 1
    state: State = State.OPEN
    version: int = 1
    settled: int = 0
    committed: int = 0
    in_ram: bool = True
    replicas: dict[str, int] = field(default_factory=dict)
    chapters: list[Chapter] = field(default_factory=list)

    @classmethod
    def of_source(cls, copies_wanted: int = 1) -> Life:
        """The life of a file whose content is on the shared file system only."""
        return cls(copies_wanted, State.DURABLE, settled=1, committed=1, in_ram=False)

    def handle(self, event: Event, now_s: float) -> tuple[Effect, ...]:
        """Take an event in; returns what has to be done about it, in order.

        A report about another version than the present one is remembered and sets nothing off.
        Raises `IllegalEvent`, changing nothing, for what cannot happen.
        """
        step = self._step(event)
        move = TABLE[self.state].get(step) if step else None
        if step and move is None:
            raise IllegalEvent(f"{event} in state {self.state.label}")
        self._note(event)
        if move is None:
            return ()
        self.state = move.to
        self.chapters.append(Chapter(now_s, _words(event), self.state))
        del self.chapters[:-STORY_LENGTH]
        return move.effects

    def note(self, sentence: str, now_s: float) -> None:
        """Put something into the story that is no event: why a way was chosen."""
        self.chapters.append(Chapter(now_s, sentence, self.state))
        del self.chapters[:-STORY_LENGTH]

    def reached(self, level: State, version: int) -> bool:
        """Whether `version`, or a later one, is at least as safe as `level`."""
        if level >= State.DURABLE:
            return self.committed >= version
        if level == State.REPLICATED:
            return self.committed >= version or self._copies(version) >= self.copies_wanted
        return self.settled >= version

    def holders(self) -> list[str]:
        """The peers that hold the present content, sorted."""
        return sorted(peer for peer, held in self.replicas.items() if held == self.version)

    def story(self) -> list[str]:
        """What happened to the file, oldest first, one sentence each."""
        return [f"{c.at_s:.3f} {c.event}: {c.state.label}" for c in self.chapters]

    def validate(self) -> None:
        """The invariants; raises AssertionError with the one that is broken."""
        assert self.settled <= self.version, "settled before it was written"
        assert self.committed <= self.settled, "committed before it settled"
        assert all(v <= self.settled for v in self.replicas.values()), "replicated, not settled"
        holds = {
            State.DURABLE: self.committed == self.version,
            State.REPLICATED: bool(self.holders()),
            State.CAPTURED: self.in_ram and self.settled == self.version,
            State.OPEN: self.settled < self.version,
        }
        assert holds.get(self.state, True), f"{self.state.label} is claimed but not true"

    def _copies(self, version: int) -> int:
        return sum(held >= version for held in self.replicas.values())

    def _step(self, event: Event) -> Step | None:
        """The event, held against what is known: None when it makes no difference."""
        match event:
            case Written():
                return Step.WRITTEN
            case Deleted():
                return None if self.state is State.GONE else Step.DELETED
            case Settled():
                return None if self.settled == self.version else Step.SETTLED
            case Committed(version):
                return Step.COMMITTED if self._is_present(version) else None
            case Acknowledged(peer, version):
                return self._acknowledged(peer, version)
            case ReplicaLost(peer):
                return self._lost_replica(peer)
            case Evicted():
                return self._evicted()

    def _is_present(self, version: int) -> bool:
        return version == self.version == self.settled and self.state is not State.GONE

    def _acknowledged(self, peer: str, version: int) -> Step | None:
        if not self._is_present(version):
            return None
        others = sum(held == version for name, held in self.replicas.items() if name != peer)
        enough = others + 1 >= self.copies_wanted or not self.in_ram
        return Step.COPIED if enough else None

    def _lost_replica(self, peer: str) -> Step | None:
        left = [name for name in self.holders() if name != peer]
        if peer not in self.holders() or len(left) >= self.copies_wanted:
            return None
        if self.in_ram or self.state is State.DURABLE:
            return Step.COPIES_LOST
        return None if left else Step.VANISHED

    def _evicted(self) -> Step | None:
        safe = self.state in (State.DURABLE, State.GONE) or self.holders()
        return None if safe or not self.in_ram else Step.VANISHED

    def _note(self, event: Event) -> None:
        """Remember what an event says. Only after it is known to be legal."""
        match event:
            case Written():
                self.version = self.settled + 1
                self.in_ram = True
            case Settled():
                self.settled = self.version
            case Committed(version):
                self.committed = max(self.committed, version)
            case Acknowledged(peer, version):
                self.replicas[peer] = max(version, self.replicas.get(peer, 0))
            case ReplicaLost(peer):
                self.replicas[peer] = 0
            case Evicted():
                self.in_ram = False
            case Deleted():
                pass


_WORDS: dict[type[Event], str] = {
    Written: "written",
    Settled: "closed, fsynced or renamed",
    Acknowledged: "version {0.version} acknowledged by {0.peer}",
    ReplicaLost: "the replica at {0.peer} is lost",
    Committed: "version {0.version} committed on the shared file system",
    Evicted: "given up by the RAM tier",
    Deleted: "deleted",
}


def _words(event: Event) -> str:
    return _WORDS[type(event)].format(event)
