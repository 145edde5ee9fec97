"""Which durable files are copied again, and in which order."""

from __future__ import annotations

from cachexfs.durability.actions import Slot
from cachexfs.durability.life import Acknowledged, Committed, Life, ReplicaLost, Settled
from cachexfs.peers.mending import lacking, newest_saves
from cachexfs.ram.node import Node, Signature

S = 1_000_000_000


def file(ino: int, at_s: float, *holders: str, in_ram: bool = True, durable: bool = True) -> Node:
    """A file that was closed at a time, with copies."""
    life = Life()
    life.handle(Settled(), at_s)
    for name in holders:
        life.handle(Acknowledged(name, 1), at_s)
    if durable:
        life.handle(Committed(1), at_s)
    node = Node(ino=ino, kind="file", names={Slot(1, b"%d" % ino)}, life=life, job="slurm:1")
    node.settled_at_ns, node.settled_as = int(at_s * S), Signature(10, 0)
    node.blob = ino if in_ram else None
    return node


def test_those_whose_copies_are_gone_newest_first() -> None:
    nodes = [file(1, 10, "p"), file(2, 20, "p"), file(3, 30, "q"), file(4, 40, "q", durable=False)]
    assert [node.ino for node in lacking(nodes, "q", ["q"], 1)] == [2, 1]
    assert lacking(nodes, "q", ["p", "q"], 1) == []
    assert [node.ino for node in lacking(nodes, "q", ["p", "q"], 2)] == [2, 1]


def test_what_never_had_a_copy_gets_none_and_what_lost_it_does() -> None:
    never, lost = file(1, 10), file(2, 20, "p")
    assert lost.life is not None
    lost.life.handle(ReplicaLost("p"), 21.0)
    assert lost.life.holders() == []
    assert [node.ino for node in lacking([never, lost], "p", ["p"], 1)] == [2]


def test_of_what_is_not_in_ram_only_the_newest_whole_save() -> None:
    old = [file(ino, 1000 + ino / 10, "p", in_ram=False) for ino in range(1, 4)]
    new = [file(ino, 2000 + ino / 10, "p", in_ram=False) for ino in range(4, 7)]
    assert newest_saves(old + new) == {4, 5, 6}
    assert {node.ino for node in lacking(old + new, "q", ["q"], 1)} == {4, 5, 6}
    unfinished = file(7, 3000.0, durable=False)
    assert newest_saves([*old, *new, unfinished]) == {4, 5, 6, 7}
