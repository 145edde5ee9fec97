"""Directories that another node has made and the shared file system has not got yet."""

from __future__ import annotations

import errno
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pyfuse3
import pytest

from cachexfs.durability.actions import Slot
from cachexfs.durability.states import State
from cachexfs.ram.journal import Journal
from cachexfs.ram.node import ROOT, Node
from cachexfs.ram.remote import Remote
from cachexfs.ram.tree import Tree
from tests.loop.handlers import CTX, WRITE, Bench, running

pytestmark = pytest.mark.trio
D = Slot(ROOT, b"d")


class Others:
    """What other nodes say, by directory and name."""

    def __init__(self) -> None:
        self.say: dict[tuple[int, bytes], Remote] = {}

    async def find(self, parent: Node, name: bytes, *, on_source: bool) -> Remote | None:
        return self.say.get((parent.ino, name))

    async def all_in(self, parent: Node) -> dict[bytes, Remote]:
        return {name: remote for (ino, name), remote in self.say.items() if ino == parent.ino}


def directory(owner: str = "b", stamp: int = 1) -> Remote:
    return Remote(
        kind="directory", owner=owner, stamp=stamp, version=1, path=b"d", ino=7, mode=0o750
    )


@pytest.fixture
def others() -> Others:
    return Others()


@pytest.fixture
async def bench(tmp_path: Path, others: Others) -> AsyncIterator[Bench]:
    async with running(tmp_path, others) as made:
        others.say[ROOT, b"d"] = directory()
        yield made


async def looked_up(bench: Bench, name: bytes, parent: int = ROOT) -> int:
    return int((await bench.does.lookup(parent, name, CTX)).st_ino)


async def test_it_is_seen_and_what_is_not_in_it_is_not(bench: Bench) -> None:
    ino = await looked_up(bench, b"d")
    assert (await bench.does.getattr(ino, CTX)).st_mode == stat.S_IFDIR | 0o750
    with pytest.raises(pyfuse3.FUSEError) as caught:
        await looked_up(bench, b"nothing", ino)
    assert caught.value.errno == errno.ENOENT


async def test_it_stays_the_same_whoever_tells_of_it_and_when_it_has_arrived(
    bench: Bench, others: Others, tmp_path: Path
) -> None:
    ino = await looked_up(bench, b"d")
    others.say[ROOT, b"d"] = directory("c", 2)
    assert await looked_up(bench, b"d") == ino
    assert Tree(Journal(tmp_path / "ram/journal.db")).elsewhere(directory(), D).ino == ino
    (bench.source_dir / "d").mkdir()
    (bench.source_dir / "d/f").touch()
    await looked_up(bench, b"f", ino)  # by who is in it, and looks its name up no more
    others.say.clear()
    assert await looked_up(bench, b"d") == ino
    assert bench.tree.nodes[ino].remote is None and bench.tree.nodes[ino].place == D


async def test_who_puts_something_in_it_makes_it_too(bench: Bench) -> None:
    ino = await looked_up(bench, b"d")
    info, _ = await bench.does.create(ino, b"f", 0o600, WRITE, CTX)
    binding = bench.tree.binding(D)
    assert binding is not None and binding.ino == ino
    await bench.does.release(info.fh)
    node = bench.tree.nodes[await looked_up(bench, b"f", ino)]
    await bench.tracker.wait(node, State.DURABLE)
    assert (bench.source_dir / "d/f").exists()


async def test_it_is_not_renamed_before_it_has_arrived(bench: Bench) -> None:
    await looked_up(bench, b"d")
    with pytest.raises(pyfuse3.FUSEError) as caught:
        await bench.does.rename(ROOT, b"d", ROOT, b"e", 0, CTX)
    assert caught.value.errno == errno.EXDEV
