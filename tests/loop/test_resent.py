"""A request comes twice: the daemon that carried it out died before its reply.

The kernel link is a fake that names the request and says that it is resent.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pyfuse3
import pytest

from cachexfs.ram.node import ROOT
from tests.loop.handlers import CTX, WRITE, Bench, running

pytestmark = pytest.mark.trio


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with running(tmp_path) as made:
        yield made


async def test_a_create_is_one_file_open_once(bench: Bench) -> None:
    for ask in (bench.first, bench.again):
        ask(2)
        info, entry = await bench.does.create(ROOT, b"file", 0o644, WRITE, CTX)
    node = bench.tree.nodes[entry.st_ino]
    assert (node.opens, node.writers) == (1, 1)
    assert bench.registered == [node.backing_id]
    bench.first(4)
    await bench.does.release(info.fh)
    assert (node.opens, node.writers, bench.registered) == (0, 0, [])


async def test_an_open_counts_once_and_so_does_a_release(bench: Bench) -> None:
    bench.first(2)
    info, entry = await bench.does.create(ROOT, b"file", 0o644, WRITE, CTX)
    node = bench.tree.nodes[entry.st_ino]
    for ask in (bench.first, bench.again):
        ask(4)
        opened = await bench.does.open(node.ino, os.O_RDONLY, CTX)
    assert node.opens == 2
    for ask in (bench.first, bench.again):
        ask(6)
        await bench.does.release(opened.fh)
    assert (node.opens, node.writers) == (1, 1)
    bench.first(8)
    await bench.does.release(info.fh)
    assert node.opens == 0


@pytest.mark.parametrize("kind", ["mkdir", "symlink", "mknod"])
async def test_what_was_made_is_found_and_not_refused(bench: Bench, kind: str) -> None:
    seen = []
    for ask in (bench.first, bench.again):
        ask(2)
        if kind == "mkdir":
            entry = await bench.does.mkdir(ROOT, b"new", 0o755, CTX)
        elif kind == "symlink":
            entry = await bench.does.symlink(ROOT, b"new", b"target", CTX)
        else:
            entry = await bench.does.mknod(ROOT, b"new", 0o100644, 0, CTX)
        seen.append(entry.st_ino)
    assert seen[0] == seen[1]


async def test_a_link_is_made_once(bench: Bench) -> None:
    (bench.source_dir / "file").write_bytes(b"x")
    ino = (await bench.does.lookup(ROOT, b"file", CTX)).st_ino
    for ask in (bench.first, bench.again):
        ask(2)
        entry = await bench.does.link(ino, ROOT, b"second", CTX)
        assert entry.st_ino == ino
    assert (bench.source_dir / "second").stat().st_nlink == 2


@pytest.mark.parametrize("kind", ["unlink", "rmdir"])
async def test_what_was_removed_is_no_error(bench: Bench, kind: str) -> None:
    if kind == "unlink":
        (bench.source_dir / "old").write_bytes(b"x")
    else:
        (bench.source_dir / "old").mkdir()
    await bench.does.lookup(ROOT, b"old", CTX)
    for ask in (bench.first, bench.again):
        ask(2)
        await getattr(bench.does, kind)(ROOT, b"old", CTX)
    bench.first(4)
    with pytest.raises(pyfuse3.FUSEError):
        await getattr(bench.does, kind)(ROOT, b"old", CTX)


async def test_a_rename_that_only_the_source_knows_of_is_caught_up_with(bench: Bench) -> None:
    (bench.source_dir / "old").write_bytes(b"moved")
    (bench.source_dir / "new").write_bytes(b"replaced")
    moved = (await bench.does.lookup(ROOT, b"old", CTX)).st_ino
    replaced = (await bench.does.lookup(ROOT, b"new", CTX)).st_ino
    os.rename(bench.source_dir / "old", bench.source_dir / "new")  # by the daemon that died
    bench.again(2)
    await bench.does.rename(ROOT, b"old", ROOT, b"new", 0, CTX)
    bench.first(4)
    assert (await bench.does.getattr(moved, CTX)).st_size == 5
    assert [slot.name for slot in bench.tree.nodes[moved].names] == [b"new"]
    assert not bench.tree.nodes[replaced].names


async def test_an_unlink_that_only_the_source_knows_of_is_caught_up_with(bench: Bench) -> None:
    (bench.source_dir / "old").write_bytes(b"removed")
    ino = (await bench.does.lookup(ROOT, b"old", CTX)).st_ino
    (bench.source_dir / "old").unlink()
    bench.again(2)
    await bench.does.unlink(ROOT, b"old", CTX)
    assert not bench.tree.nodes[ino].names


async def test_a_swap_is_not_undone(bench: Bench) -> None:
    (bench.source_dir / "a").write_bytes(b"first")
    (bench.source_dir / "b").write_bytes(b"second!")
    for name in (b"a", b"b"):
        await bench.does.lookup(ROOT, name, CTX)
    for ask in (bench.first, bench.again):
        ask(2)
        await bench.does.rename(ROOT, b"a", ROOT, b"b", pyfuse3.RENAME_EXCHANGE, CTX)
    assert (await bench.does.lookup(ROOT, b"a", CTX)).st_size == 7
    assert (bench.source_dir / "a").read_bytes() == b"second!"


async def test_removing_an_attribute_twice_is_no_error(bench: Bench) -> None:
    bench.first(2)
    _, entry = await bench.does.create(ROOT, b"file", 0o644, WRITE, CTX)
    await bench.does.setxattr(entry.st_ino, b"user.one", b"1", CTX)
    for ask in (bench.first, bench.again):
        ask(4)
        await bench.does.removexattr(entry.st_ino, b"user.one", CTX)
    bench.first(6)
    with pytest.raises(pyfuse3.FUSEError):
        await bench.does.removexattr(entry.st_ino, b"user.one", CTX)
