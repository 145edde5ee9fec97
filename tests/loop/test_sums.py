"""Checksums of blobs that go, move or cannot be read while they are taken."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cachexfs.durability.actions import Slot
from cachexfs.durability.checksum import chunk_crc
from cachexfs.durability.life import Deleted, Life, Settled, Written
from cachexfs.ram import checksums
from cachexfs.ram.journal import Journal
from cachexfs.ram.node import ROOT, Node
from cachexfs.ram.sums import Sums
from cachexfs.ram.tier import Tier
from cachexfs.ram.tree import Tree

pytestmark = pytest.mark.trio

CONTENT = b"x" * 4096


class Bench:
    """One settled file, and what happens to it just before its blob is read."""

    def __init__(self, base: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
        (base / "ram").mkdir()
        self.tier = Tier(base / "ram", 1 << 30, pages="", private=False)
        self.tier.use_overflow(base / "overflow")
        self.sums = Sums(tree, self.tier)
        self.node = _file(tree, self.tier)
        self.before_reading: list[Callable[[], object]] = []
        self._real = checksums.of_file
        monkeypatch.setattr(checksums, "of_file", self._read)

    def _read(self, path: Path) -> tuple[int, bytes]:
        while self.before_reading:
            self.before_reading.pop(0)()
        return self._real(path)

    @property
    def blob(self) -> int:
        assert self.node.blob is not None
        return self.node.blob

    @property
    def life(self) -> Life:
        assert self.node.life is not None
        return self.node.life


def _file(tree: Tree, tier: Tier) -> Node:
    node = tree.new("file")
    node.blob, fd = tier.create()
    os.write(fd, CONTENT)
    os.close(fd)
    node.life = Life()
    node.life.handle(Settled(), 0.0)
    tree.bind(Slot(ROOT, b"file"), node)
    return node


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    journal = Journal(tmp_path / "journal.db")
    yield Bench(tmp_path, Tree(journal), monkeypatch)
    journal.close()


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


async def test_they_are_those_of_the_content(bench: Bench) -> None:
    assert await bench.sums.ensure(bench.node, 1)
    assert bench.node.crcs == chunk_crc(CONTENT)


async def test_a_file_that_was_deleted_meanwhile_is_no_matter(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    def delete() -> None:
        bench.tier.delete(bench.blob)
        bench.life.handle(Deleted(), 1.0)
        bench.node.names, bench.node.blob = set(), None

    bench.before_reading = [delete]
    assert not await bench.sums.ensure(bench.node, 1)
    assert _warnings(caplog) == []


async def test_a_file_that_was_written_anew_meanwhile_is_no_matter(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    def write() -> None:
        bench.tier.delete(bench.blob)
        bench.node.blob, fd = bench.tier.create()
        os.close(fd)
        bench.life.handle(Written(), 1.0)

    bench.before_reading = [write]
    assert not await bench.sums.ensure(bench.node, 1)
    assert _warnings(caplog) == []


async def test_a_blob_that_moved_meanwhile_is_read_where_it_is(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.before_reading = [lambda: bench.tier.overflow(bench.blob)]
    assert await bench.sums.ensure(bench.node, 1)
    assert bench.node.crcs == chunk_crc(CONTENT)
    assert _warnings(caplog) == []


async def test_a_blob_that_should_be_there_and_is_not_is_said(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.before_reading = [lambda: bench.tier.delete(bench.blob)]
    assert not await bench.sums.ensure(bench.node, 1)
    assert ["No such file" in text for text in _warnings(caplog)] == [True]


async def test_a_blob_that_cannot_be_read_is_said(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    bench.before_reading = [fail]
    assert not await bench.sums.ensure(bench.node, 1)
    assert ["Input/output error" in text for text in _warnings(caplog)] == [True]
