"""The shared file system hangs or fails, and what the members have is read all the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachexfs.demo.faults import Fault
from tests.cluster_of_nodes import Node, eventually, run
from tests.three_nodes import Cluster, three_nodes

pytestmark = [pytest.mark.root, pytest.mark.fuse]
MIB = 1 << 20
HANGS = Fault(hang=True)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with three_nodes(tmp_path, "captured") as made:
        yield made


def read(path: Path) -> bytes:
    """By a process that is left behind if need be: what hangs must not hang the test."""
    process = subprocess.Popen(["cat", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        content, said = process.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"{path} is not read") from None
    assert process.returncode == 0, said
    return content


def save(node: Node, size: int = 9 * MIB + 5) -> bytes:
    """A durable file `d/f` with a copy at the partner."""
    (node.mountpoint / "d").mkdir()
    content = os.urandom(size)
    (node.mountpoint / "d" / "f").write_bytes(content)
    node.wait("durable")
    eventually(lambda: all(file["replicas"] for file in node.ls()), "the copies")
    return content


@pytest.mark.slow
def test_what_was_evicted_here_is_read_from_the_members_while_the_source_hangs(
    cluster: Cluster,
) -> None:
    content, path = save(cluster.a), cluster.a.mountpoint / "d" / "f"
    run("evict", path)
    assert os.listdir(path.parent) == ["f"]
    with cluster.storage.fault(HANGS):
        assert path.stat().st_size == len(content)
        assert read(path) == content


def test_what_another_node_wrote_is_read_from_the_members_while_the_source_hangs(
    cluster: Cluster,
) -> None:
    content = save(cluster.a)
    paths = [node.mountpoint / "d" / "f" for node in (cluster.b, cluster.c)]
    for path in paths:
        assert os.listdir(path.parent) == ["f"] and path.stat().st_size == len(content)
    with cluster.storage.fault(HANGS):
        assert read(paths[0]) == content
        owner = cluster.a.daemon()
        os.kill(owner, signal.SIGSTOP)  # its memory is out of reach, its partner is not
        try:
            assert read(paths[1]) == content
        finally:
            os.kill(owner, signal.SIGCONT)


@pytest.mark.slow
def test_what_nobody_delivers_any_more_is_an_error_and_not_zeros(cluster: Cluster) -> None:
    content, path = save(cluster.a, 40 * MIB), cluster.a.mountpoint / "d" / "f"
    run("evict", path)
    assert os.listdir(path.parent) == ["f"]
    fails = Fault(errno="EIO", ops=("open", "read"), name="f")
    with cluster.storage.fault(fails), path.open("rb", buffering=0) as file:
        assert file.read(10) == content[:10]
        for node in cluster.nodes:
            node.stop_peer(signal.SIGKILL)
        with pytest.raises(OSError, match="rror"):
            for offset in range(0, len(content), MIB):
                piece = os.pread(file.fileno(), MIB, offset)
                assert piece == content[offset : offset + MIB]


@pytest.mark.slow
def test_the_next_daemon_serves_while_the_source_hangs(cluster: Cluster) -> None:
    content, path = save(cluster.a), cluster.a.mountpoint / "d" / "f"
    with cluster.storage.fault(HANGS):
        daemon = cluster.a.daemon()
        cluster.a.kill_only_daemon()
        cluster.a.wait_for_another(daemon)
        assert read(path) == content


@pytest.mark.slow
def test_a_mount_comes_up_while_the_source_hangs_and_has_what_the_members_have(
    cluster: Cluster,
) -> None:
    content = save(cluster.a)
    cluster.c.umount()
    with cluster.storage.fault(HANGS):
        cluster.a.kill_mount()
        cluster.a.wipe()
        mountpoint = cluster.c.mount()
        codes = [problem["code"] for problem in cluster.c.report()["problems"]]
        assert "SourceNotAnswering" in codes
        done = json.loads(run("recover", mountpoint, "--json").stdout)
        assert "d/f" in done["recovered"]
        assert read(mountpoint / "d" / "f") == content
        (mountpoint / "d" / "next").write_bytes(b"next")
        cluster.c.wait("replicated", "d/next")
    cluster.c.wait("durable")
    backing = cluster.storage.backing / "d"
    assert (backing / "f").read_bytes() == content and (backing / "next").read_bytes() == b"next"
    eventually(lambda: sorted(os.listdir(mountpoint / "d")) == ["f", "next"], "one directory")
    assert (cluster.b.mountpoint / "d" / "next").read_bytes() == b"next"
