"""Directories: renamed when full, removed under readers, moved by other nodes."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from cachexfs.demo.faults import Fault
from cachexfs.demo.faulty_storage import FaultyStorage
from tests.cluster_of_nodes import Node, eventually, nodes
from tests.mount.conftest import Place


def test_case_10_a_directory_of_a_thousand_files_is_renamed_with_some_open(place: Place) -> None:
    old, new = place.mine / "old", place.mine / "new"
    old.mkdir()
    for number in range(1000):
        (old / f"{number:04}").write_bytes(b"%d" % number)
    reader = (old / "0001").open("rb")
    writer = (old / "open").open("wb", buffering=0)
    writer.write(b"before, ")
    old.rename(new)
    writer.write(b"after")
    assert not old.exists()
    assert len(os.listdir(new)) == 1001
    assert reader.read() == b"1"
    writer.close()
    reader.close()
    place.publish()
    eventually(lambda: not (place.source / "old").exists(), "the rename")
    assert len(os.listdir(place.source / "new")) == 1001
    assert (place.source / "new" / "open").read_bytes() == b"before, after"
    assert (place.source / "new" / "0777").read_bytes() == b"777"


def test_case_11_rmtree_while_a_reader_has_files_open(place: Place) -> None:
    directory = place.mine / "checkpoint"
    directory.mkdir()
    for number in range(20):
        (directory / str(number)).write_bytes(b"content")
    readers = [(directory / str(number)).open("rb") for number in range(20)]
    shutil.rmtree(directory)
    assert os.listdir(place.mine) == []
    assert {reader.read() for reader in readers} == {b"content"}
    for reader in readers:
        reader.close()
    eventually(lambda: os.listdir(place.source) == [], "the removal on the source")


def test_a_directory_renamed_by_another_node_gets_its_pending_files(
    tmp_path: Path, faulty_storage: FaultyStorage
) -> None:
    with nodes(tmp_path, source=faulty_storage.mountpoint) as (node,):
        node.mount()
        (node.mountpoint / "run").mkdir()
        faulty_storage.set_fault(Fault(delay_s=0.3, ops=("write",)))
        (node.mountpoint / "run" / "shard").write_bytes(b"s" * 3_000_000)
        (node.source / "run").rename(node.source / "renamed")
        faulty_storage.clear()
        node.wait("durable")
        eventually(lambda: (node.source / "renamed" / "shard").exists(), "its arrival")
        assert (node.source / "renamed" / "shard").read_bytes() == b"s" * 3_000_000
        assert not (node.source / "run").exists()


def test_a_listing_is_whole_while_files_are_published(node: Node) -> None:
    for number in range(100):
        (node.mountpoint / f"{number}").write_bytes(b"x")
        assert len(os.listdir(node.mountpoint)) == number + 1
    deadline = time.monotonic() + 10
    while len(os.listdir(node.source)) < 100 and time.monotonic() < deadline:
        assert len(os.listdir(node.mountpoint)) == 100


def test_a_listing_goes_on_while_names_come_and_go(place: Place) -> None:
    for number in range(2000):
        (place.mine / f"{number}").touch()
    seen = set()
    with os.scandir(place.mine) as entries:
        for position, entry in enumerate(entries):
            seen.add(entry.name)
            if position == 100:
                (place.mine / "new").touch()
    assert seen >= {str(number) for number in range(2000)}
