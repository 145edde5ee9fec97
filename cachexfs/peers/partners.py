"""The links of a node to its partners and standbys: opened, closed and chosen as members change.

`cachexfs.peers.choice` decides; this keeps the links in agreement with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import trio

from cachexfs.config import Member
from cachexfs.peers.choice import Candidate, State, Steadiness, choose, connected, preference
from cachexfs.peers.sender import PeerLink

Holders = Callable[[], set[str]]
"""The members that hold something which is not durable yet."""


class Partners:
    """`make` makes a link, `holders` is asked before one is dropped, `dropped` is told after it."""

    def __init__(
        self,
        node: str,
        rack: str,
        members: Iterable[Member],
        copies: int,
        make: Callable[[Member], PeerLink],
        holders: Holders,
        dropped: Callable[[str], None],
    ) -> None:
        self._node = node
        self._rack = rack
        self._copies = copies
        self._make = make
        self._holders = holders
        self._dropped = dropped
        self._members: dict[str, Member] = {}
        self._steadiness: dict[str, Steadiness] = {}
        self._scopes: dict[str, trio.CancelScope] = {}
        self._nursery: trio.Nursery | None = None
        self.links: dict[str, PeerLink] = {}
        self._take(members)
        for name in connected(list(self._members), {}, holders(), copies):
            self.links[name] = make(self._members[name])
        self.chosen = tuple(self.links)[:copies]

    def start(self, nursery: trio.Nursery) -> None:
        """Run the links in a nursery."""
        self._nursery = nursery
        for name in list(self.links):
            self._run(name)

    def take(self, members: Sequence[Member]) -> None:
        """The members have changed. Who has a new address is a new member."""
        moved = [m.name for m in members if m != self._members.get(m.name, m)]
        self._members.clear()
        self._take(members)
        for name in list(self.links):
            if name not in self._members or name in moved:
                self._drop(name)
        self.review()

    def review(self) -> tuple[str, ...]:
        """Choose again; the partners that are new."""
        now_s = trio.current_time()
        states = {
            name: self._steadiness.setdefault(name, Steadiness()).see(link.state, now_s)
            for name, link in self.links.items()
        }
        self._connect(connected(list(self._members), states, (), self._copies))
        candidates = [self._seen(link, states) for link in self.links.values()]
        before = self.chosen
        self.chosen = choose(self._rack, candidates, self._copies, before)
        return tuple(name for name in self.chosen if name not in before)

    @property
    def living(self) -> list[str]:
        """The members whose copies count: connected, or not down for long."""
        return [
            name
            for name, link in self.links.items()
            if link.state != "down" and self._steadiness.get(name, Steadiness()).state != "down"
        ]

    def _seen(self, link: PeerLink, states: Mapping[str, State]) -> Candidate:
        state = states.get(link.name, "shaky")
        rack = self._members[link.name].rack
        return Candidate(link.name, rack, state, link.free_bytes, link.owners)

    def _take(self, members: Iterable[Member]) -> None:
        ordered = preference(self._node, self._rack, members)
        self._members.update((member.name, member) for member in ordered)

    def _connect(self, wanted: list[str]) -> None:
        surplus = [name for name in self.links if name not in wanted and name not in self.chosen]
        held = self._holders() if surplus else set()
        for name in surplus:
            if name not in held:
                self._drop(name)
        for name in wanted:
            if name not in self.links:
                self.links[name] = self._make(self._members[name])
                self._run(name)
        self.links = {name: self.links[name] for name in self._members if name in self.links}

    def _run(self, name: str) -> None:
        if self._nursery is not None:
            scope = self._scopes[name] = trio.CancelScope()
            self._nursery.start_soon(_run_within, scope, self.links[name])

    def _drop(self, name: str) -> None:
        if (scope := self._scopes.pop(name, None)) is not None:
            scope.cancel()
        del self.links[name]
        self._steadiness.pop(name, None)
        self.chosen = tuple(other for other in self.chosen if other != name)
        self._dropped(name)


async def _run_within(scope: trio.CancelScope, link: PeerLink) -> None:
    with scope:
        await link.run()
