"""The registrar over homes that a test can hold up, and over some that do not reach each other."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from cachexfs.durability.actions import Slot
from cachexfs.durability.life import Life, Settled
from cachexfs.peers import messages as m
from cachexfs.peers.catalogue import Catalogue
from cachexfs.peers.greeting import Identity
from cachexfs.peers.home import Home, Request
from cachexfs.peers.homes import WAIT_S, Homes, Kept
from cachexfs.peers.registrar import LATER_S, Registrar
from cachexfs.ram.journal import Journal
from cachexfs.ram.node import ROOT
from cachexfs.ram.tree import Tree

pytestmark = pytest.mark.trio


class Told:
    """Homes that take everything, after `silent_s` the first time."""

    def __init__(self) -> None:
        self.names: set[bytes] = set()
        self.silent_s = 0.0

    async def register(self, directory: int, entries: list[m.Entry]) -> Kept:
        # One home of two does not answer; the other one has heard at once.
        self.names |= {entry.name for entry in entries}
        silent_s, self.silent_s = self.silent_s, 0.0
        await trio.sleep(silent_s)
        return Kept({}, 1)

    def unsettle(self, directory: int) -> None:
        """Nothing."""


class Mount:
    """What one node tells, of symbolic links in its root."""

    def __init__(self, base: Path, node: str) -> None:
        self.tree = Tree(Journal(base / f"{node}.db"))
        tier: Any = SimpleNamespace()
        catalogue = Catalogue(self.tree, tier, node, "/lustre", lambda: 7)
        self.homes = Told()
        self.registrar = Registrar(self.tree, catalogue, node)
        self.registrar.homes = cast(Homes, self.homes)
        self.tree.on_binding = self.registrar.bound

    def make(self, name: bytes) -> None:
        slot = Slot(ROOT, name)
        node = self.tree.new("symlink", slot)
        node.target = b"there"
        self.tree.bind(slot, node)


@pytest.fixture
async def mount(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[Mount]:
    made = Mount(tmp_path, "a")
    nursery.start_soon(made.registrar.run)
    yield made
    nursery.cancel_scope.cancel()


async def test_who_comes_while_a_home_is_waited_for_is_told_too(
    mount: Mount, autojump_clock: trio.testing.MockClock
) -> None:
    mount.homes.silent_s = WAIT_S
    mount.make(b"first")
    await trio.testing.wait_all_tasks_blocked()
    mount.make(b"second")
    await mount.registrar.told()
    assert mount.homes.names == {b"first", b"second"}


async def test_a_node_that_is_stopped_while_it_tells_has_told_when_it_returns(mount: Mount) -> None:
    mount.homes.silent_s = WAIT_S / 2
    mount.make(b"first")
    await trio.testing.wait_all_tasks_blocked()
    mount.make(b"second")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop, 3 * WAIT_S)
        await mount.registrar.told()
    assert mount.homes.names == {b"first", b"second"}


# --- two nodes that write one path, and do not hear of each other --------------------------------


class Net:
    """Homes, and which of them nodes do not reach."""

    def __init__(self, names: str) -> None:
        self.homes = {name: Home() for name in names}
        self.cut: set[tuple[str, str]] = set()


class Reached(Homes):
    """The homes of all directories are all there are; they answer at once, or not at all."""

    def __init__(self, net: Net, node: str, nursery: trio.Nursery, registrar: Registrar) -> None:
        self._net, self._node = net, node
        super().__init__(
            "/lustre", [], Identity(node, b""), nursery, registrar.superseded, registrar.came_back
        )

    def of(self, directory: int) -> tuple[str, ...]:
        return tuple(self._net.homes)

    async def _ask_these(
        self, names: Iterable[str], make: Callable[[int], m.Message]
    ) -> list[m.Message]:
        await trio.lowlevel.checkpoint()
        return [
            self._net.homes[name].answer(cast(Request, make(1)), self._node, self._pushed)
            for name in names
            if (self._node, name) not in self._net.cut
        ]

    def healed(self) -> None:
        for name in self._net.homes:
            self._is_back(name)


class Writer:
    """A node that writes a file in its root; `publish` stands in for the publisher."""

    def __init__(self, base: Path, net: Net, name: str, nursery: trio.Nursery) -> None:
        self.tree = Tree(Journal(base / f"{name}.db"))
        (base / name).write_bytes(name.encode())
        tier: Any = SimpleNamespace(path=lambda blob: base / name)
        catalogue = Catalogue(self.tree, tier, name, "/lustre", lambda: 7)
        self.registrar = Registrar(self.tree, catalogue, name)
        self.homes = self.registrar.homes = Reached(net, name, nursery, self.registrar)
        self.registrar.give_up = self.tree.release
        self.tree.on_binding = self.registrar.bound
        nursery.start_soon(self.registrar.run)

    async def close(self) -> None:
        node = self.tree.new("file", SLOT)
        node.life, node.blob = Life(), node.ino
        node.life.handle(Settled(), 0.0)
        node.settled_at_ns = self.tree.clock.now_ns()
        self.tree.bind(SLOT, node)
        await self.registrar.told()

    async def publish(self) -> None:
        if self.tree.binding(SLOT) is not None:
            self.tree.release(SLOT)
            await trio.sleep(2 * LATER_S)  # and the homes are told

    @property
    def gave_up(self) -> bool:
        return self.tree.binding(SLOT) is None

    @property
    def reported(self) -> list[str]:
        return [problem.detail for problem in self.registrar.problems()]


SLOT = Slot(ROOT, b"f")
SIDES = [
    {("b", "x"), ("b", "y")},  # the homes are all on one side
    {("a", "x"), ("b", "y")},  # one on each
]


@pytest.fixture(params=SIDES)
async def both(
    request: pytest.FixtureRequest, tmp_path: Path, nursery: trio.Nursery
) -> AsyncIterator[tuple[Net, Writer, Writer]]:
    net = Net("xy")
    writers = [Writer(tmp_path, net, name, nursery) for name in "ab"]
    net.cut = set(request.param)
    yield net, *writers
    nursery.cancel_scope.cancel()


async def heal(net: Net, *writers: Writer) -> None:
    net.cut.clear()
    for writer in writers:
        writer.homes.healed()
        await trio.sleep(3 * LATER_S)


@pytest.mark.parametrize("a_first", [True, False])
async def test_of_two_that_are_not_published_the_later_close_counts(
    both: tuple[Net, Writer, Writer], a_first: bool, autojump_clock: trio.testing.MockClock
) -> None:
    net, *writers = both
    first, last = writers if a_first else reversed(writers)
    await first.close()
    await last.close()
    assert not first.reported and not last.reported
    await heal(net, *writers)
    assert first.gave_up and not last.gave_up
    assert len(first.reported) == 1 and "which counts" in first.reported[0]


@pytest.mark.parametrize("a_first", [True, False])
async def test_one_that_was_published_meanwhile_is_not_replaced_by_an_earlier_close(
    both: tuple[Net, Writer, Writer], a_first: bool, autojump_clock: trio.testing.MockClock
) -> None:
    net, a, b = both
    first, last = (a, b) if a_first else (b, a)
    await first.close()
    await last.close()
    await last.publish()
    await heal(net, b, a)
    assert first.gave_up
    assert first.reported or last.reported


@pytest.mark.parametrize("a_first", [True, False])
async def test_two_that_were_published_side_by_side_are_reported(
    both: tuple[Net, Writer, Writer], a_first: bool, autojump_clock: trio.testing.MockClock
) -> None:
    net, a, b = both
    await a.close()
    await b.close()
    for writer in (a, b) if a_first else (b, a):
        await writer.publish()
    await heal(net, a, b)
    assert a.reported and b.reported
    await heal(net, a, b)
    assert len(a.reported) == len(b.reported) == 1


async def test_one_after_the_other_is_no_conflict(
    both: tuple[Net, Writer, Writer], autojump_clock: trio.testing.MockClock
) -> None:
    net, a, b = both
    for writer in (a, b, a):
        await writer.close()
        await writer.publish()
    await heal(net, b, a)
    assert a.reported == b.reported == []
    await b.close()
    await heal(net, b, a)
    assert a.reported == b.reported == [] and not b.gave_up


async def stop(for_s: float) -> None:
    await trio.sleep(0.05)
    time.sleep(for_s)  # noqa: ASYNC251 - the whole loop stands still, as that of a stopped process
