"""Links that follow the members."""

from __future__ import annotations

import pytest
import trio

from cachexfs.config import Member
from cachexfs.peers.choice import FULL_BYTES, STANDBYS, State
from cachexfs.peers.partners import Partners

pytestmark = pytest.mark.trio


class FakeLink:
    """A link whose state a test sets."""

    def __init__(self, member: Member) -> None:
        self.name, self.address = member.name, member.address
        self.state: State = "up"
        self.free_bytes, self.owners = 2 * FULL_BYTES, 0
        self.runs = False

    async def run(self) -> None:
        self.runs = True
        try:
            await trio.sleep_forever()
        finally:
            self.runs = False


class World:
    """Partners over links that are not real."""

    def __init__(self, count: int, copies: int = 1) -> None:
        self.held: set[str] = set()
        self.dropped: list[str] = []
        self.partners = Partners(
            "me", "", cluster(count), copies,
            FakeLink,  # type: ignore[arg-type]
            lambda: self.held, self.dropped.append,
        )  # fmt: skip

    def link(self, name: str) -> FakeLink:
        link = self.partners.links[name]
        assert isinstance(link, FakeLink)
        return link

    @property
    def running(self) -> list[str]:
        return [name for name in self.partners.links if self.link(name).runs]


def cluster(count: int) -> list[Member]:
    return [Member(name=f"n{i}", address=f"n{i}:1") for i in range(count)]


async def test_a_node_is_connected_to_few_of_many(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    world = World(1000, copies=2)
    world.partners.start(nursery)
    await trio.testing.wait_all_tasks_blocked()
    assert len(world.running) == 2 + STANDBYS
    assert world.partners.review() == ()
    first, second = world.partners.chosen
    world.link(first).state = "down"
    (successor,) = world.partners.review()
    assert set(world.partners.chosen) == {second, successor}
    await trio.testing.wait_all_tasks_blocked()
    assert len(world.running) == 3 + STANDBYS  # one more standby for the one that is down
    nursery.cancel_scope.cancel()


async def test_who_holds_something_is_not_dropped(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    world = World(1000)
    world.partners.start(nursery)
    (first,) = world.partners.chosen
    world.link(first).state = "down"
    (second,) = world.partners.review()
    added = list(world.partners.links)[-1]
    world.held.add(added)
    world.link(first).state = "up"
    world.partners.review()
    assert world.partners.chosen == (second,) and added in world.partners.links
    world.held.clear()
    world.partners.review()
    assert added not in world.partners.links and world.dropped == [added]
    nursery.cancel_scope.cancel()


async def test_members_come_and_go(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    world = World(4)
    world.partners.start(nursery)
    (chosen,) = world.partners.chosen
    world.partners.take([m for m in cluster(4) if m.name != chosen])
    assert chosen in world.dropped and chosen not in world.partners.links
    assert len(world.partners.chosen) == 1
    (other,) = world.partners.chosen
    moved = [
        Member(name=m.name, address="elsewhere:1") if m.name == other else m for m in cluster(4)
    ]
    before = world.link(other)
    world.partners.take(moved)
    assert world.link(other) is not before and world.link(other).address == "elsewhere:1"
    nursery.cancel_scope.cancel()
