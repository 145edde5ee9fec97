"""Copies that went with a host: who still has the bytes is found, and the copies are made again."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachexfs.demo.faults import Fault
from tests.cluster_of_nodes import Node, eventually, run
from tests.three_nodes import Cluster, three_nodes

pytestmark = [pytest.mark.root, pytest.mark.fuse]
MIB = 1 << 20
FILES = {"small": 1000, "empty": 0, "large": 9 * MIB + 5}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with three_nodes(tmp_path, "captured") as made:
        yield made


def save(node: Node) -> dict[str, bytes]:
    """A checkpoint that is durable and at the partner; its files."""
    directory = node.mountpoint / "ckpt"
    directory.mkdir()
    content = {name: os.urandom(size) for name, size in FILES.items()}
    for name, data in content.items():
        (directory / name).write_bytes(data)
    node.wait("durable")
    eventually(lambda: all(file["replicas"] for file in node.ls()), "the copies")
    return content


def held_at(node: Node, name: str) -> bool:
    """Whether all files have a copy at a member."""
    return all(name in file["replicas"] for file in node.ls())


def recovered(by: Node, to: Path) -> dict[str, bytes]:
    """What comes back into a directory."""
    shutil.rmtree(to, ignore_errors=True)
    done = run("recover", "--to", to, "-c", by.config, "--json")
    assert not json.loads(done.stdout)["damaged"]
    return {path.name: path.read_bytes() for path in (to / "ckpt").iterdir()}


def test_what_only_a_memory_has_comes_back_on_another_node(
    cluster: Cluster, tmp_path: Path
) -> None:
    content = save(cluster.a)
    lost = cluster.partner()
    (other,) = cluster.others_than("a", lost.name)
    with cluster.storage.fault(Fault(hang=True)):
        lost.stop_peer(signal.SIGKILL)
        assert recovered(other, tmp_path / "to") == content
        assert json.loads(run("recover", other.mountpoint, "--json").stdout)["broken"] == []
        for name, data in content.items():
            assert (other.mountpoint / "ckpt" / name).read_bytes() == data


def test_copies_of_durable_files_are_made_again_at_another_member(
    cluster: Cluster, tmp_path: Path
) -> None:
    content = save(cluster.a)
    lost = cluster.partner()
    (other,) = cluster.others_than("a", lost.name)
    lost.stop_peer(signal.SIGKILL)
    eventually(lambda: held_at(cluster.a, other.name), "the copies")
    cluster.a.kill_mount()
    cluster.a.wipe()
    assert recovered(other, tmp_path / "to") == content


@pytest.mark.slow
def test_a_partner_that_lost_its_store_gets_the_durable_files_again(
    cluster: Cluster, tmp_path: Path
) -> None:
    content = save(cluster.a)
    lost = cluster.partner()
    lost.stop_peer(signal.SIGKILL)
    shutil.rmtree(lost.store)
    lost.start_peer()
    eventually(lambda: len(os.listdir(lost.store / "data")) == len(FILES), "the copies")
    eventually(lambda: held_at(cluster.a, lost.name), "the word of it")
    cluster.a.kill_mount()
    cluster.a.wipe()
    (other,) = cluster.others_than("a", lost.name)
    assert recovered(other, tmp_path / "to") == content


@pytest.mark.slow
def test_what_is_not_in_memory_any_more_is_brought_from_the_source(
    cluster: Cluster, tmp_path: Path
) -> None:
    content = save(cluster.a)
    lost = cluster.partner()
    (other,) = cluster.others_than("a", lost.name)
    os.chmod(cluster.a.mountpoint / "ckpt" / "large", 0o640)
    cluster.a.wait("durable")
    run("evict", *(cluster.a.mountpoint / "ckpt" / name for name in FILES))
    lost.stop_peer(signal.SIGKILL)
    eventually(lambda: held_at(cluster.a, other.name), "the copies")
    cluster.a.kill_mount()
    cluster.a.wipe()
    with cluster.storage.fault(Fault(hang=True)):
        assert recovered(other, tmp_path / "to") == content
        assert (tmp_path / "to" / "ckpt" / "large").stat().st_mode & 0o7777 == 0o640
