"""A name that the kernel knows already, and for which another node has something newer."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pyfuse3
import pytest

from cachexfs.durability.states import State
from cachexfs.mount import standing
from cachexfs.ram.node import ROOT, Node
from cachexfs.ram.remote import Remote
from tests.loop.handlers import CTX, WRITE, Bench, running

pytestmark = pytest.mark.trio


class Others:
    """What other nodes say of names in the root."""

    def __init__(self) -> None:
        self.say: dict[bytes, Remote] = {}
        self.asked = 0

    async def find(self, parent: Node, name: bytes, *, on_source: bool) -> Remote | None:
        self.asked += 1
        return self.say.get(name)

    async def all_in(self, parent: Node) -> dict[bytes, Remote]:
        return self.say


@pytest.fixture
def others() -> Others:
    return Others()


@pytest.fixture
async def bench(
    tmp_path: Path, others: Others, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Bench]:
    monkeypatch.setattr(standing, "BELIEVED_S", 0.0)
    async with running(tmp_path, others) as made:
        (made.source_dir / "file").write_bytes(b"old")
        yield made


def closed(version: int = 2, kind: str = "file") -> Remote:
    return Remote(
        kind=kind, owner="b", stamp=version, version=version, path=b"file", size_bytes=3, mtime_ns=5
    )


async def looked_up(bench: Bench, name: bytes = b"file") -> Node:
    entry = await bench.does.lookup(ROOT, name, CTX)
    return bench.tree.nodes[entry.st_ino]


async def opened(bench: Bench, node: Node) -> int:
    """0, or the errno with which the kernel is answered."""
    try:
        info = await bench.does.open(node.ino, os.O_RDONLY, CTX)
    except pyfuse3.FUSEError as error:
        return int(error.errno)
    await bench.does.release(info.fh)
    return 0


@pytest.mark.parametrize("kind", ["file", "gone"])
async def test_what_another_node_has_closed_or_removed_is_looked_up_again(
    bench: Bench, others: Others, kind: str
) -> None:
    node = await looked_up(bench)
    assert await opened(bench, node) == 0
    others.say[b"file"] = closed(kind=kind)
    assert await opened(bench, node) == errno.ESTALE


async def test_a_later_version_of_another_nodes_file_is_looked_up_again(
    bench: Bench, others: Others
) -> None:
    others.say[b"file"] = closed(2)
    node = await looked_up(bench)
    others.say[b"file"] = closed(3)
    assert await opened(bench, node) == errno.ESTALE
    assert (await looked_up(bench)).ino != node.ino


async def test_what_was_removed_or_replaced_there_is_looked_up_again(bench: Bench) -> None:
    node = await looked_up(bench)
    (bench.source_dir / "file").unlink()
    assert await opened(bench, node) == errno.ESTALE
    with pytest.raises(pyfuse3.FUSEError) as caught:
        await looked_up(bench)
    assert caught.value.errno == errno.ENOENT


async def test_a_copy_here_of_what_was_replaced_there_is_not_opened(bench: Bench) -> None:
    info, entry = await bench.does.create(ROOT, b"mine", 0o600, WRITE, CTX)
    await bench.does.write(info.fh, 0, b"mine")
    await bench.does.flush(info.fh)
    await bench.does.release(info.fh)
    node = bench.tree.nodes[entry.st_ino]
    await bench.tracker.wait(node, State.DURABLE)
    (bench.source_dir / "new").write_bytes(b"theirs")
    (bench.source_dir / "new").rename(bench.source_dir / "mine")
    assert await opened(bench, node) == errno.ESTALE


async def test_what_was_removed_there_is_not_opened_by_another_program(bench: Bench) -> None:
    node = await looked_up(bench)
    info = await bench.does.open(node.ino, os.O_RDONLY, CTX)
    (bench.source_dir / "file").unlink()
    assert await opened(bench, node) == errno.ESTALE
    assert await bench.does.read(info.fh, 0, 8) == b"old"
    await bench.does.release(info.fh)


async def test_what_was_just_looked_up_is_believed(
    bench: Bench, others: Others, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing, "BELIEVED_S", 60.0)
    node = await looked_up(bench)
    asked = others.asked
    assert await opened(bench, node) == 0 and others.asked == asked


async def test_who_has_no_name_to_look_up_opens_what_it_has(
    bench: Bench, others: Others, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await looked_up(bench)
    others.say[b"file"] = closed()
    monkeypatch.setattr(standing, "BELIEVED_S", 60.0)
    bench.does.standing.forget()
    assert [await opened(bench, node) for _ in range(2)] == [errno.ESTALE, 0]


async def test_of_our_own_names_nobody_is_asked(bench: Bench, others: Others) -> None:
    info, entry = await bench.does.create(ROOT, b"mine", 0o600, WRITE, CTX)
    asked = others.asked
    assert await opened(bench, bench.tree.nodes[entry.st_ino]) == 0
    assert others.asked == asked
    await bench.does.release(info.fh)
