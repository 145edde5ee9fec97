"""Room in the RAM tier: what goes, in which order, and what never goes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cachexfs.durability.life import Committed, Life, Settled
from cachexfs.ram.journal import Journal
from cachexfs.ram.node import Node
from cachexfs.ram.room import HIGH_WATER, Room, evictable
from cachexfs.ram.tier import Tier
from cachexfs.ram.tree import Tree

BLOB = 1 << 20


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    journal = Journal(tmp_path / "journal.db")
    yield Tree(journal)
    journal.close()


@pytest.fixture
def tier(tmp_path: Path) -> Tier:
    (tmp_path / "ram").mkdir()
    return Tier(tmp_path / "ram", 8 * BLOB, pages="as found", private=False)


def _file(tree: Tree, tier: Tier, at: int, *, durable: bool = True) -> Node:
    node = tree.new("file")
    node.blob, fd = tier.create()
    with open(fd, "wb") as blob:  # noqa: PTH123
        blob.write(b"x" * BLOB)
    node.life, node.settled_at_ns = Life(), at
    node.life.handle(Settled(), at)
    if durable:
        node.life.handle(Committed(1), at)
    return node


def test_the_oldest_durable_file_goes_first(tree: Tree, tier: Tier) -> None:
    newer, older = _file(tree, tier, 2), _file(tree, tier, 1)
    assert evictable(tree.captured()) == [older, newer]


def test_what_is_not_durable_open_or_pinned_stays(tree: Tree, tier: Tier) -> None:
    _file(tree, tier, 1, durable=False)
    _file(tree, tier, 2).opens = 1
    _file(tree, tier, 3).pinned = True
    assert evictable(tree.captured()) == []


def test_relaxing_goes_down_to_the_high_water_mark(tree: Tree, tier: Tier) -> None:
    files = [_file(tree, tier, at) for at in range(8)]
    gone: list[Node] = []
    Room(tree, tier, gone.append).relax()
    assert gone == files[: len(gone)]
    assert tier.usage().used_bytes <= tier.usage().limit_bytes * HIGH_WATER


def test_a_file_with_changes_on_their_way_stays(tree: Tree, tier: Tier) -> None:
    files = [_file(tree, tier, at) for at in range(8)]
    gone: list[Node] = []
    Room(tree, tier, gone.append, is_busy=lambda node: node is files[0]).relax()
    assert files[0] not in gone
    assert files[1] in gone
