"""What members, homes and partners come to in a cluster of any size. Pure.

Nothing is modelled apart: `rendezvous.first` chooses homes, `choice.preference`, `connected` and
`choose` choose partners, as in a daemon.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cachexfs.config import Member
from cachexfs.peers.choice import FULL_BYTES, Candidate, choose, connected, preference
from cachexfs.peers.homes import HOMES
from cachexfs.peers.rendezvous import first

RACK_SIZE = 16
ROOMY_BYTES = 100 * FULL_BYTES


def cluster(size: int) -> list[Member]:
    """Members in racks of `RACK_SIZE`."""
    return [
        Member(name=f"n{i:05}", address=f"n{i:05}:7420", rack=f"r{i // RACK_SIZE:04}")
        for i in range(size)
    ]


@dataclass(frozen=True)
class Spread:
    """How evenly something is spread: shares of members in units of the mean."""

    mean: float
    largest: float
    p99: float

    @classmethod
    def of(cls, counts: Counter[str], members: int) -> Spread:
        """Over `members` members, those without any included."""
        shares = sorted([*counts.values(), *([0] * (members - len(counts)))])
        mean = sum(shares) / members
        return cls(mean, shares[-1] / mean, shares[int(0.99 * members)] / mean)


def homes(members: Sequence[Member], directories: int) -> list[list[str]]:
    """The homes of so many directories."""
    names = [member.name for member in members]
    return [first(f"/lustre\0{number}".encode(), names, HOMES) for number in range(directories)]


def partners(
    members: Sequence[Member], owners: Iterable[Member], copies: int, *, by_load: bool
) -> dict[str, tuple[str, ...]]:
    """The partners of each owner, who come one after the other and see what the others chose."""
    load: Counter[str] = Counter()
    chosen: dict[str, tuple[str, ...]] = {}
    for owner in owners:
        order = preference(owner.name, owner.rack, members)
        near = connected([member.name for member in order], {}, (), copies)
        by_name = {member.name: member for member in order[: len(near)]}
        candidates = [
            Candidate(name, by_name[name].rack, "up", ROOMY_BYTES, load[name] if by_load else 0)
            for name in near
        ]
        chosen[owner.name] = choose(owner.rack, candidates, copies)
        load.update(chosen[owner.name])
    return chosen


@dataclass(frozen=True)
class Moves:
    """Of so many, how many got other homes or partners; `without_need`: of those that lost none."""

    of: int
    moved: int
    without_need: int


def moves(
    before: Sequence[Sequence[str]], after: Sequence[Sequence[str]], lost: frozenset[str]
) -> Moves:
    """What the loss of members moved."""
    changed = [(b, a) for b, a in zip(before, after, strict=True) if set(b) != set(a)]
    return Moves(len(before), len(changed), sum(not lost & set(b) for b, _ in changed))


def sample(members: Sequence[Member], count: int) -> list[Member]:
    """Some owners, the same in every run."""
    return random.Random(6).sample(list(members), min(count, len(members)))
