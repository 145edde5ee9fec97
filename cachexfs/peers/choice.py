"""Which members keep the replicas of a node. Pure.

rack-disjoint    a rack is a failure domain: a copy in the owner's, or in that of another copy,
                 may die with it
room, then load  a member whose store is full, or that serves far more owners than the others,
                 is taken when nobody else is left
rendezvous       between equals each owner has an order of its own, which members that come and
                 go do not change
constancy        a partner stays one until a better class of member is there: what is nearly
                 equal moves nothing
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from cachexfs.config import Member
from cachexfs.peers.rendezvous import score

STANDBYS = 2
"""Members beyond the partners that a node stays connected to, so that the next one is known to be
up, how full it is and how busy, before it is needed."""
FULL_BYTES = 1 << 30
"""A store with less room than this is full: one file of a checkpoint may be larger."""
BUSY_FACTOR = 2
"""A member with more than this many times the owners of the least busy one is busy."""
STEADY_FIRST_S = 5.0
"""A member that was down is trusted like the others after so long without a fall."""
STEADY_MAX_S = 300.0

State = Literal["up", "shaky", "down"]


class Candidate(NamedTuple):
    """A member as it is seen now. `owners`: for how many nodes it keeps replicas."""

    name: str
    rack: str
    state: State
    free_bytes: int
    owners: int = 0


def preference(node: str, rack: str, members: Iterable[Member]) -> list[Member]:
    """All members but the node itself, by rendezvous: those in other racks first, and the first of
    each rack before the second of any, so that a few members are in different racks."""
    key = b"partners of " + node.encode()
    others = [member for member in members if member.name != node]
    others.sort(key=lambda member: score(key, member.name), reverse=True)
    seen: Counter[str] = Counter()
    ranked = []
    for place, member in enumerate(others):
        ranked.append((bool(rack) and member.rack == rack, seen[member.rack], place, member))
        seen[member.rack] += bool(member.rack)
    return [member for *_, member in sorted(ranked, key=lambda each: each[:3])]


def connected(
    order: Sequence[str], states: Mapping[str, State], holders: Iterable[str], copies: int
) -> list[str]:
    """The members to be connected to, in the order of preference.

    As many as are needed and some standbys, not counting those that are known to be down; and all
    that hold something that is not durable, so that they hear what becomes of it.
    """
    wanted, held = copies + STANDBYS, set(holders)
    chosen = []
    for name in order:
        if wanted > 0:
            chosen.append(name)
            wanted -= states.get(name, "shaky") != "down"
        elif name in held:
            chosen.append(name)
    return chosen


def choose(
    rack: str, candidates: Sequence[Candidate], copies: int, current: Sequence[str] = ()
) -> tuple[str, ...]:
    """The partners among candidates, which come in the order of preference."""
    left, chosen = list(candidates), list[Candidate]()
    least = min((c.owners for c in candidates if c.state != "down"), default=0)
    while left and len(chosen) < copies:
        racks = {rack, *(c.rack for c in chosen)} - {""}
        best = min(left, key=lambda c: _rank(c, racks, least, current))
        left.remove(best)
        chosen.append(best)
    return tuple(c.name for c in chosen)


def _rank(
    candidate: Candidate, racks: set[str], least_owners: int, current: Sequence[str]
) -> tuple[bool, ...]:
    is_current = candidate.name in current
    return (
        candidate.state == "down",
        candidate.rack in racks,
        candidate.state != "down" and candidate.free_bytes < FULL_BYTES,
        not is_current and candidate.state == "shaky",
        not is_current and candidate.owners > BUSY_FACTOR * (least_owners + 1),
        not is_current,
    )


@dataclass
class Steadiness:
    """One member's state with hysteresis: who was down is up again when it has stayed so a while.

    Each fall within that while doubles it, so a member that comes and goes is not chosen, dropped
    and chosen again.
    """

    state: State = "shaky"
    steady_s: float = STEADY_FIRST_S
    _back_at_s: float | None = field(default=None, repr=False)

    def see(self, seen: State, now_s: float) -> State:
        """Take in the state of the link; the state to go by."""
        if seen == "down":
            self._fall()
        elif self.state != "down" and self._back_at_s is None:
            self.state = seen
        elif seen == "up":
            self._rise(now_s)
        return self.state

    def _fall(self) -> None:
        if self.state != "down" and self._back_at_s is not None:
            self.steady_s = min(2 * self.steady_s, STEADY_MAX_S)
        self.state, self._back_at_s = "down", None

    def _rise(self, now_s: float) -> None:
        if self._back_at_s is None:
            self.state, self._back_at_s = "shaky", now_s
        elif now_s - self._back_at_s >= self.steady_s:
            self.state, self._back_at_s, self.steady_s = "up", None, STEADY_FIRST_S
