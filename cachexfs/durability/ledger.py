"""The order in which things become visible on the shared file system. Pure.

An entry waits for the entry before it in its job, for those before it that touch the same inode or
the same name, and for those that make, move or remove the directory it stands in (which in turn
wait for all that stands in it). Nothing else: so one stuck file holds up its own job, and a job
never sees its steps in another order than it took them.

Prior art: the dependency lists of soft updates (McKusick and Ganger, USENIX 1999), without their
rollbacks, since here an entry is carried out whole or not at all.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from cachexfs.durability.actions import Action


@dataclass(frozen=True)
class Entry:
    """One action, its number in the mount's order, and the job whose order it keeps."""

    seq: int
    job: str
    action: Action


@dataclass
class _Tail:
    """Who touched a key last: one alone, and those that share it since."""

    alone: int | None = None
    sharing: set[int] = field(default_factory=set)


@dataclass
class Ledger:
    """Entries that are not carried out yet, and what each waits for."""

    entries: dict[int, Entry] = field(default_factory=dict)
    _blockers: dict[int, set[int]] = field(default_factory=dict)
    _dependents: dict[int, list[int]] = field(default_factory=dict)
    _tails: dict[Hashable, _Tail] = field(default_factory=dict)
    _next_seq: int = 1

    def append(self, job: str, action: Action, seq: int | None = None) -> Entry:
        """Add an action at the end; `seq` only when an older ledger is read back, in order."""
        entry = Entry(self._next_seq if seq is None else seq, job, action)
        self._next_seq = entry.seq + 1
        blockers = self._take_place(entry)
        self.entries[entry.seq] = entry
        self._blockers[entry.seq] = blockers
        for blocker in blockers:
            self._dependents.setdefault(blocker, []).append(entry.seq)
        return entry

    def is_ready(self, seq: int) -> bool:
        """Whether nothing stands before this entry any more."""
        return not self._blockers[seq]

    def blockers(self, seq: int) -> list[Entry]:
        """The entries that this one waits for, oldest first."""
        return [self.entries[blocker] for blocker in sorted(self._blockers[seq])]

    def is_idle(self, job: str, *keys: Hashable) -> bool:
        """Whether nothing of this job and nothing that touches `keys` is waiting."""
        return not any(key in self._tails for key in (_job_key(job), *keys))

    def is_touched(self, key: Hashable) -> bool:
        """Whether an entry that touches `key`, or stands in it, is waiting."""
        return key in self._tails

    def done(self, seq: int) -> list[Entry]:
        """Take an entry out, carried out or cancelled; returns those that are ready by that."""
        self._leave(self.entries.pop(seq))
        del self._blockers[seq]
        freed = []
        for dependent in self._dependents.pop(seq, []):
            waits = self._blockers.get(dependent)
            if waits is None:
                continue
            waits.discard(seq)
            if not waits:
                freed.append(self.entries[dependent])
        return freed

    def validate(self) -> None:
        """The invariants; raises AssertionError with the one that is broken."""
        for seq, blockers in self._blockers.items():
            assert seq in self.entries, f"{seq} waits but is no entry"
            assert blockers <= set(self.entries), f"{seq} waits for what is done"
            assert all(blocker < seq for blocker in blockers), f"{seq} waits for a later entry"

    def _take_place(self, entry: Entry) -> set[int]:
        """Stand at the end of every line the entry belongs to; returns whom it waits for."""
        blockers: set[int] = set()
        for key in _keys_alone(entry):
            tail = self._tails.setdefault(key, _Tail())
            blockers |= tail.sharing | ({tail.alone} if tail.alone is not None else set())
            tail.alone, tail.sharing = entry.seq, set()
        for key in entry.action.stands_in():
            tail = self._tails.setdefault(key, _Tail())
            blockers |= {tail.alone} if tail.alone is not None else set()
            tail.sharing.add(entry.seq)
        return blockers - {entry.seq}

    def _leave(self, entry: Entry) -> None:
        for key in (*_keys_alone(entry), *entry.action.stands_in()):
            tail = self._tails.get(key)
            if tail is None:
                continue
            tail.sharing.discard(entry.seq)
            if tail.alone == entry.seq:
                tail.alone = None
            if tail.alone is None and not tail.sharing:
                del self._tails[key]


def _job_key(job: str) -> Hashable:
    return ("job", job)


def _keys_alone(entry: Entry) -> tuple[Hashable, ...]:
    return (_job_key(entry.job), *entry.action.touches())
