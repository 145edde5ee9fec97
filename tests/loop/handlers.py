"""The handlers of a mount without a kernel: over a real tree, RAM tier and source."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import trio

from cachexfs.durability.states import State
from cachexfs.mount.files import OpenFiles
from cachexfs.mount.link.backings import Backings
from cachexfs.mount.names import Names
from cachexfs.mount.operations import Operations
from cachexfs.mount.ports import Elsewhere, Request
from cachexfs.mount.view import View
from cachexfs.mount.xattrs import Xattrs
from cachexfs.peers.replicator import NoPartners
from cachexfs.pfs.publisher import Publisher
from cachexfs.pfs.source import Source
from cachexfs.ram.journal import Journal
from cachexfs.ram.room import Room
from cachexfs.ram.sums import Sums
from cachexfs.ram.tier import Tier
from cachexfs.ram.tree import Tree
from cachexfs.tracker import Tracker

CTX: Any = SimpleNamespace(uid=os.getuid(), gid=os.getgid(), pid=os.getpid(), umask=0o022)
WRITE = os.O_CREAT | os.O_WRONLY


class FakeLink:
    """Names the request that a handler has."""

    def __init__(self) -> None:
        self.request = Request()

    def begin(self, handler: str) -> None:
        """The test has set `request`."""

    def kick(self) -> None:
        """Nobody waits."""


class Bench:
    """One mount without a kernel."""

    def __init__(self, base: Path, elsewhere: Elsewhere | None = None) -> None:
        self.source_dir = base / "source"
        for directory in (self.source_dir, base / "ram"):
            directory.mkdir()
        journal = Journal(base / "ram/journal.db")
        self.tree = Tree(journal)
        self.tree.keeps_reflections = True
        self.tier = tier = Tier(base / "ram", 1 << 30, pages="", private=False)
        self.source = source = Source(self.source_dir, self.tree, 2.0)
        sums = Sums(self.tree, tier)
        self.tracker = tracker = Tracker(self.tree, tier, sums, 1)
        self.publisher = Publisher(self.tree, tier, sums, journal, source, tracker, tag="t")
        tracker.publisher, tracker.replicator = self.publisher, NoPartners()
        room = Room(self.tree, tier, tracker.evicted, tracker.is_busy)
        tracker.room = room
        self.files = files = OpenFiles(self.tree, tier, source, tracker, room)
        self.registered: list[int] = []
        self.backed: list[str] = []
        backings = Backings(0, self._register, lambda _, number: self._give_up(number))
        files.passthrough.agreed(backings)
        view = View(self.tree, tier, source, files, room, elsewhere)
        names = Names(self.tree, tier, source, tracker, view, files, 2.0)
        xattrs = Xattrs(self.tree, source, tracker, "/mnt", "/socket")
        self.link = FakeLink()
        self.does = Operations(
            self.tree, tier, source, tracker, view, files, names, xattrs, fsync_level=State.CAPTURED
        )
        self.does.kernel_link = self.link

    def _register(self, device: int, fd: int) -> int:
        self.registered.append(len(self.registered) + 1)
        self.backed.append(os.readlink(f"/proc/self/fd/{fd}"))
        return self.registered[-1]

    def _give_up(self, number: int) -> None:
        self.registered.remove(number)

    def first(self, unique: int) -> None:
        """The next request is sent for the first time."""
        self.link.request = Request(unique, is_resent=False)

    def again(self, unique: int) -> None:
        """The next request is resent."""
        self.link.request = Request(unique, is_resent=True)


@asynccontextmanager
async def running(base: Path, elsewhere: Elsewhere | None = None) -> AsyncIterator[Bench]:
    made = Bench(base, elsewhere)
    async with trio.open_nursery() as nursery:
        await nursery.start(made.publisher.run)
        yield made
        nursery.cancel_scope.cancel()
