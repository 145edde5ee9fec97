"""Names, nodes and their journal: what is there again after the daemon died."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cachexfs.durability.actions import Publish, Rename, Slot
from cachexfs.durability.ledger import Entry
from cachexfs.durability.life import Life, Settled
from cachexfs.ram.journal import Journal
from cachexfs.ram.node import ROOT, Origin
from cachexfs.ram.tree import GONE, Tree


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def tree(path: Path) -> Iterator[Tree]:
    journal = Journal(path)
    yield Tree(journal)
    journal.close()


def test_a_tree_is_the_same_when_it_is_opened_again(path: Path, tree: Tree) -> None:
    directory = tree.reflect(Origin(1, 1 << 62 | 5), "directory", Slot(ROOT, b"run"))
    node = tree.new("file")
    node.blob, node.life, node.xattrs = 7, Life(2), {b"user.a": b"\0\xff"}
    node.life.handle(Settled(), 1.5)
    tree.bind(Slot(directory.ino, b"\xffname"), node, 3)
    tree.unbind(Slot(ROOT, b"old"), node)
    journal = Journal(path)
    again = Tree(journal)
    assert again.nodes[node.ino] == node
    assert again.path_of(again.nodes[node.ino]) == b"run/\xffname"
    assert again.binding(Slot(directory.ino, b"\xffname")) == (node.ino, 3)
    assert again.binding(Slot(ROOT, b"old")) == (GONE, None)
    assert again.known_as(Origin(1, 1 << 62 | 5)) == directory
    assert again.new("file").ino > node.ino
    journal.close()


def test_a_number_is_never_given_out_again_also_not_by_the_next_daemon(
    path: Path, tree: Tree
) -> None:
    # The ledger, the peers and the kernel may still speak of a node that is forgotten here: a file
    # that got its number was published in its place, and then taken to be published.
    given = set()
    for _ in range(3):
        again = Tree(Journal(path))
        for _ in range(5):
            node = again.new("file")
            assert node.ino not in given
            given.add(node.ino)
            again.save(node)
            again.drop(node)


def test_a_number_of_the_source_that_the_ledger_still_touches_is_not_reused(tree: Tree) -> None:
    old = tree.reflect(Origin(1, 5), "file", Slot(ROOT, b"old"))
    tree.drop(old)
    tree.is_spoken_of = lambda ino: ino == old.ino
    assert tree.reflect(Origin(1, 5), "file", Slot(ROOT, b"new")).ino != old.ino


def test_a_binding_goes_with_its_entry_only(tree: Tree) -> None:
    slot, node = Slot(ROOT, b"file"), tree.new("file")
    tree.bind(slot, node, 1)
    tree.bind(slot, node, 2)
    tree.settle(slot, 1)
    assert tree.binding(slot) == (node.ino, 2)
    tree.settle(slot, 2)
    assert tree.binding(slot) is None


def test_an_object_that_was_just_made_is_never_an_older_one(tree: Tree) -> None:
    old = tree.reflect(Origin(1, 5), "file", Slot(ROOT, b"old"))
    new = tree.made(Origin(1, 5), "directory", Slot(ROOT, b"new"))
    assert new is not old
    assert new.ino != old.ino
    assert tree.known_as(Origin(1, 5)) is new


def test_entries_and_orders_are_read_back_in_order(path: Path) -> None:
    journal = Journal(path)
    slot = Slot((1 << 63) + 1, b"\xff")
    entries = [
        Entry(4, "slurm:1", Publish(9, 2, (slot,))),
        Entry(5, "", Rename(9, slot, Slot(1, b"n"), exchange=True)),
    ]
    for entry in entries:
        journal.add_entry(entry)
    first, second = journal.post("b", b"one"), journal.post("b", b"two")
    journal.delivered(first)
    journal.close()
    again = Journal(path)
    assert again.entries() == entries
    assert again.outbox("b") == [(second, b"two")]
    again.close()


def test_a_transaction_is_all_or_nothing(path: Path) -> None:
    journal = Journal(path)
    with pytest.raises(ZeroDivisionError), journal.transaction():
        journal.set("a", "1")
        with journal.transaction():
            journal.set("b", "2")
        raise ZeroDivisionError
    assert journal.get("a") is None
    assert journal.get("b") is None
    journal.close()


def test_what_cannot_be_rolled_back_waits_for_the_record(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
    done: list[str] = []
    with pytest.raises(ZeroDivisionError), journal.transaction():
        journal.after_commit(lambda: done.append("rolled back"))
        raise ZeroDivisionError
    with journal.transaction():
        with journal.transaction():
            journal.after_commit(lambda: done.append("on record"))
        assert done == []
    journal.after_commit(lambda: done.append("at once"))
    assert done == ["on record", "at once"]
    journal.close()
