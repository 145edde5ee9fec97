"""The registrar over homes that a test can hold up."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from cachexfs.durability.actions import Slot
from cachexfs.peers import messages as m
from cachexfs.peers.catalogue import Catalogue
from cachexfs.peers.homes import WAIT_S, Homes, Kept
from cachexfs.peers.registrar import Registrar
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

    async def forget(self, directory: int, names: list[tuple[bytes, int]]) -> None:
        self.names -= {name for name, _ in names}

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


async def stop(for_s: float) -> None:
    await trio.sleep(0.05)
    time.sleep(for_s)  # noqa: ASYNC251 - the whole loop stands still, as that of a stopped process
