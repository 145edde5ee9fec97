"""Saves that come again find their pages ready, and leave no more behind than they hold."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cluster_of_nodes import Node, eventually, nodes

pytestmark = pytest.mark.fuse

MIB = 1 << 20
PREWARM = '[ram]\nlimit = "1GiB"\nprewarm = true\nhuge_pages = {}\n'


def used(node: Node) -> int:
    """Bytes of the RAM tier in use."""
    return int(node.report()["ram"]["used_bytes"])


def save(node: Node, number: int, size_bytes: int) -> os.stat_result:
    """A file of a series; returns its status once it is safe."""
    path = node.mountpoint / f"step-{number}.pt"
    path.write_bytes(os.urandom(MIB) * (size_bytes // MIB))
    node.wait("durable")
    return path.stat()


def test_a_series_on_small_pages(tmp_path: Path) -> None:
    with nodes(tmp_path, extra=PREWARM.format("false")) as (a,):
        a.mount()
        first = save(a, 1, 64 * MIB)
        eventually(lambda: used(a) >= 128 * MIB, "pages for the next save")
        second = save(a, 2, 48 * MIB)
        assert (second.st_size, second.st_blocks * 512) == (48 * MIB, 48 * MIB)
        assert second.st_mtime_ns > first.st_mtime_ns
        for number in (1, 2):
            path = f"step-{number}.pt"
            assert (a.mountpoint / path).read_bytes() == (a.source / path).read_bytes()
        a.umount()
        assert not a.state.joinpath("ram", "data").exists()


def test_on_huge_pages_there_is_nothing_to_do(tmp_path: Path) -> None:
    with nodes(tmp_path, extra=PREWARM.format("true")) as (a,):
        a.mount()
        save(a, 1, 64 * MIB)
        with pytest.raises(AssertionError):
            eventually(lambda: used(a) >= 100 * MIB, timeout_s=2)


def test_room_is_for_files_first(tmp_path: Path) -> None:
    extra = PREWARM.format("false").replace("1GiB", "256MiB")
    with nodes(tmp_path, extra=extra) as (a,):
        a.mount()
        save(a, 1, 48 * MIB)
        eventually(lambda: used(a) >= 96 * MIB, "pages for the next save")
        save(a, 7, 200 * MIB)
        save(a, 8, 200 * MIB)
        assert (a.source / "step-8.pt").stat().st_size == 200 * MIB
