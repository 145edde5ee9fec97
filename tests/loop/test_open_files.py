"""Opens that overlap: the kernel holds all opens of an inode to one mode."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from cachexfs.ram.node import ROOT
from tests.loop.handlers import CTX, Bench, running

pytestmark = pytest.mark.trio

CONTENT = b"x" * 4096


class Slow:
    """A step of the source that is under way until it may go on."""

    def __init__(self, real: Callable[..., Awaitable[object]]) -> None:
        self._real = real
        self.begun, self.may_go = trio.Event(), trio.Event()

    async def __call__(self, *arguments: object) -> object:
        self.begun.set()
        await self.may_go.wait()
        return await self._real(*arguments)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with running(tmp_path) as made:
        (made.source_dir / "file").write_bytes(CONTENT)
        yield made


@pytest.mark.parametrize("other", [os.O_RDONLY, os.O_RDWR])
@pytest.mark.parametrize("step", ["copy_out", "open"])
async def test_an_open_during_one_that_takes_its_time_decides_for_both(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, other: int, step: str
) -> None:
    entry = await bench.does.lookup(ROOT, b"file", CTX)
    node = bench.tree.nodes[entry.st_ino]
    slow = Slow(getattr(bench.source, step))
    monkeypatch.setattr(bench.source, step, slow)

    async def open_slowly() -> None:
        info = await bench.does.open(node.ino, os.O_RDWR if step == "copy_out" else 0, CTX)
        assert await bench.does.read(info.fh, 0, 8192) == CONTENT

    async with trio.open_nursery() as nursery:
        nursery.start_soon(open_slowly)
        await slow.begun.wait()
        monkeypatch.undo()
        info = await bench.does.open(node.ino, other, CTX)  # is told: through the daemon
        assert bench.registered == []
        slow.may_go.set()
    await wait_all_tasks_blocked()
    assert (node.opens, node.backing_id, bench.registered) == (2, None, [])
    assert await bench.does.read(info.fh, 0, 8192) == CONTENT


async def test_one_that_was_closed_meanwhile_decides_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = await bench.does.lookup(ROOT, b"file", CTX)
    node = bench.tree.nodes[entry.st_ino]
    slow = Slow(bench.source.copy_out)
    monkeypatch.setattr(bench.source, "copy_out", slow)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.does.open, node.ino, os.O_RDWR, CTX)
        await slow.begun.wait()
        info = await bench.does.open(node.ino, os.O_RDONLY, CTX)
        await bench.does.release(info.fh)
        slow.may_go.set()
    assert (node.opens, bench.registered) == (1, [node.backing_id])


async def test_a_file_that_is_emptied_while_it_is_opened_is_read_as_it_is_then(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = await bench.does.lookup(ROOT, b"file", CTX)
    node = bench.tree.nodes[entry.st_ino]
    slow = Slow(bench.source.open)
    monkeypatch.setattr(bench.source, "open", slow)
    handles: list[int] = []

    async def open_slowly() -> None:
        handles.append((await bench.does.open(node.ino, os.O_RDONLY, CTX)).fh)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(open_slowly)
        await slow.begun.wait()
        await bench.files.truncate(node, 0)
        slow.may_go.set()
    assert await bench.does.read(handles[0], 0, 8192) == b""
    assert node.blob is not None
    assert bench.backed == [str(bench.tier.path(node.blob))]
