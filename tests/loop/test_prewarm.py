"""Blobs that have their pages ahead of time: made, taken, trimmed, given up."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from cachexfs.ram.node import Node
from cachexfs.ram.prewarm import Prewarm
from cachexfs.ram.tier import Tier

pytestmark = pytest.mark.trio

MIB = 1 << 20
LIMIT = 256 * MIB
KEPT_S = 1.5
PATH = b"step-%d/model.pt"


class Files:
    """A tier with files in it, and where they are."""

    def __init__(self, root: Path) -> None:
        root.mkdir()
        self.tier = Tier(root, LIMIT, pages="as found", private=False)
        self.paths: dict[int, bytes] = {}
        self.prewarm = Prewarm(self.tier, lambda node: self.paths[node.ino])
        self.tier.prewarm = self.prewarm

    def save(self, number: int, size_bytes: int) -> tuple[Node, int]:
        """Create, write and close; the file, and the bytes that it had before the first write."""
        path = PATH % number
        node = Node(ino=number, kind="file")
        node.blob, fd = self.tier.create(lambda: path)
        had = os.fstat(fd).st_blocks * 512
        for offset in range(0, size_bytes, MIB):
            os.pwrite(fd, b"x" * min(MIB, size_bytes - offset), offset)
        os.close(fd)
        self.paths[number] = path
        self.prewarm.closed(node)
        return node, had

    def used(self, node: Node) -> int:
        """The room that a file takes."""
        assert node.blob is not None
        return self.tier.status(node.blob).st_blocks * 512

    async def made_ready(self) -> None:
        """Wait out the pause after a save, and give the thread that makes blobs its time."""
        await trio.sleep(0.4)


@pytest.fixture
async def files(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Files]:
    monkeypatch.setattr("cachexfs.ram.prewarm.QUIET_S", 0.05)
    monkeypatch.setattr("cachexfs.ram.prewarm.KEPT_S", KEPT_S)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        made = Files(Path(directory) / "ram")
        nursery.start_soon(made.prewarm.run)
        yield made
        nursery.cancel_scope.cancel()


async def test_the_next_file_of_a_pattern_has_its_pages_and_gives_back_what_it_does_not_use(
    files: Files,
) -> None:
    first, had = files.save(1, 32 * MIB)
    assert had == 0
    await files.made_ready()
    second, had = files.save(2, 20 * MIB + 1)
    assert had == 32 * MIB
    assert files.tier.status(second.blob or 0).st_size == 20 * MIB + 1
    assert 20 * MIB < files.used(second) < 21 * MIB
    assert files.used(first) == 32 * MIB
    assert files.tier.create(lambda: PATH % 3)[0] not in (first.blob, second.blob)


async def test_another_pattern_and_small_files_get_nothing(files: Files) -> None:
    files.save(1, 32 * MIB)
    await files.made_ready()
    _, fd = files.tier.create(lambda: b"step-2/optimizer.pt")
    assert os.fstat(fd).st_blocks == 0
    os.close(fd)
    files.save(2, 9)
    await files.made_ready()
    assert files.save(3, 9)[1] == 0


async def test_as_many_are_ready_as_files_were_closed(files: Files) -> None:
    for number in range(3):
        files.save(number, 16 * MIB)
    await files.made_ready()
    assert [files.save(number, 16 * MIB)[1] // MIB for number in range(3, 7)] == [16, 16, 16, 0]


async def test_never_beyond_half_of_the_room(files: Files) -> None:
    for number in range(3):
        files.save(number, 40 * MIB)
    await files.made_ready()
    assert files.tier.usage().used_bytes <= LIMIT // 2
    assert files.save(9, 1)[1] == 0


async def test_they_go_when_room_is_needed_and_when_nobody_comes(
    files: Files,
) -> None:
    node, _ = files.save(1, 32 * MIB)
    await files.made_ready()
    assert files.tier.usage().used_bytes == 64 * MIB
    files.prewarm.give_up()
    assert files.tier.usage().used_bytes == 32 * MIB
    files.prewarm.closed(node)
    await files.made_ready()
    assert files.tier.usage().used_bytes == 64 * MIB
    await trio.sleep(2 * KEPT_S)
    assert files.tier.usage().used_bytes == 32 * MIB
