"""A source that is busy: a save does not wait for it where what was seen can stand in."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachexfs.demo.faults import Fault
from cachexfs.demo.faulty_storage import FaultyStorage
from tests.cluster_of_nodes import Node, nodes

BUSY_S = 0.4
SOON_S = 0.3
BUSY = Fault(delay_s=BUSY_S)
RATHER_BUSY = Fault(delay_s=0.05)
KERNEL_FORGETS_S = 1.1
"""Longer than `attributes.TIMEOUT_S`."""


@pytest.fixture
def node(tmp_path: Path, faulty_storage: FaultyStorage) -> Iterator[Node]:
    """A mount over storage that can be made slow, with a directory that a program saves into."""
    with nodes(tmp_path, source=faulty_storage.mountpoint) as (node,):
        node.mount()
        (node.mountpoint / "run").mkdir()
        (node.mountpoint / "run/first").write_bytes(b"1")
        node.wait("durable", "run")
        time.sleep(KERNEL_FORGETS_S)  # and the directory was looked at meanwhile
        try:
            yield node
        finally:
            faulty_storage.clear()


def opened_in(path: Path, flags: int) -> float:
    """Seconds that open and close take."""
    begin = time.monotonic()
    os.close(os.open(path, flags, 0o644))
    return time.monotonic() - begin


ANEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


@pytest.mark.fuse
def test_a_file_is_made_without_waiting(node: Node, faulty_storage: FaultyStorage) -> None:
    with faulty_storage.fault(BUSY):
        assert opened_in(node.mountpoint / "run/second", ANEW) < SOON_S
        time.sleep(KERNEL_FORGETS_S)
        assert opened_in(node.mountpoint / "run/third", ANEW) < SOON_S
        time.sleep(KERNEL_FORGETS_S)
        assert opened_in(node.mountpoint / "run/lock", ANEW | os.O_EXCL) > BUSY_S / 2
    node.wait("durable", "run")
    assert sorted(os.listdir(node.source / "run")) == ["first", "lock", "second", "third"]


@pytest.mark.fuse
def test_what_was_published_is_written_again_and_keeps_its_mode(
    node: Node, faulty_storage: FaultyStorage
) -> None:
    path = node.mountpoint / "run/latest"
    path.write_bytes(b"1")
    path.chmod(0o600)
    node.wait("durable", "run/latest")
    number = path.stat().st_ino
    time.sleep(KERNEL_FORGETS_S)
    with faulty_storage.fault(BUSY):
        path.write_bytes(b"2")
    assert path.stat().st_mode & 0o777 == 0o600 and path.stat().st_ino == number
    node.wait("durable", "run/latest")
    assert (node.source / "run/latest").read_bytes() == b"2"


@pytest.mark.fuse
def test_a_directory_that_another_node_made_just_now_is_there(
    node: Node, faulty_storage: FaultyStorage
) -> None:
    (node.source / "run/theirs").mkdir()
    with faulty_storage.fault(RATHER_BUSY):
        (node.mountpoint / "run/theirs/shard").write_bytes(b"1")
    node.wait("durable", "run")
    assert (node.source / "run/theirs/shard").read_bytes() == b"1"


@pytest.mark.fuse
def test_who_reads_waits(node: Node, faulty_storage: FaultyStorage) -> None:
    """Made past the mount, after the directory was looked at."""
    (node.source / "run/theirs").write_bytes(b"theirs")
    (node.source / "run/theirs").chmod(0o600)
    with faulty_storage.fault(RATHER_BUSY):
        assert (node.mountpoint / "run/theirs").read_bytes() == b"theirs"
