"""Several nodes over one source that takes no files: what one closes, all can read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachexfs.demo.faults import Fault
from tests.cluster_of_nodes import eventually, listed, run
from tests.three_nodes import Cluster, three_nodes

pytestmark = [pytest.mark.root, pytest.mark.fuse]
MIB = 1 << 20
FULL = Fault(errno="EDQUOT", ops=("write",), name=".cachexfs-*")
STALE_S = 1.3
"""Beyond `attributes.TIMEOUT_S`: the kernel may go on for so long with what it has seen."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with three_nodes(tmp_path_factory.mktemp("many"), "captured", "2s") as made:
        yield made


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    """Nothing gets through to the source, and every node's partner is up."""
    running.storage.set_fault(FULL)
    yield running
    running.storage.clear()
    if os.environ.get("KEEP_LOGS"):
        for node in (running.a, running.b, running.c):
            Path(os.environ["KEEP_LOGS"], node.name).write_text(node.log)
    for node in (running.a, running.b, running.c):
        node.wait("durable")
    for entry in running.a.mountpoint.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def content_of(path: Path) -> bytes:
    return path.read_bytes()


def test_what_is_closed_is_read_everywhere_at_once(cluster: Cluster) -> None:
    directory = cluster.a.mountpoint / "step"
    directory.mkdir()
    for size in (0, 1, 4097, 9 * MIB + 5):
        content = os.urandom(size)
        (directory / f"f{size}").write_bytes(content)
        os.chmod(directory / f"f{size}", 0o640)
        for path in cluster.everywhere(f"step/f{size}"):
            assert content_of(path) == content
            assert path.stat().st_size == size and path.stat().st_mode & 0o777 == 0o640
    for path in cluster.everywhere("step"):
        assert sorted(os.listdir(path)) == ["f0", "f1", "f4097", f"f{9 * MIB + 5}"]
    there = os.listdir(cluster.storage.backing / "step")
    assert not [name for name in there if not name.startswith(".cachexfs-") and name != "f0"]


def test_rename_and_removal_by_the_owner_are_seen(cluster: Cluster) -> None:
    (cluster.a.mountpoint / "tmp").write_bytes(b"one")
    assert content_of(cluster.b.mountpoint / "tmp") == b"one"
    (cluster.a.mountpoint / "tmp").rename(cluster.a.mountpoint / "latest")
    assert content_of(cluster.c.mountpoint / "latest") == b"one"
    assert not (cluster.c.mountpoint / "tmp").exists()
    (cluster.a.mountpoint / "latest").unlink()
    eventually(lambda: not (cluster.b.mountpoint / "latest").exists(), timeout_s=STALE_S)
    assert os.listdir(cluster.b.mountpoint) == []


def test_the_newer_content_of_a_path_is_read(cluster: Cluster) -> None:
    cluster.storage.clear()
    (cluster.a.mountpoint / "latest").write_text("step 1")
    cluster.a.wait("durable", "latest")
    cluster.storage.set_fault(FULL)
    with (cluster.a.mountpoint / "latest.tmp").open("w") as file:
        file.write("step 20")
    (cluster.a.mountpoint / "latest.tmp").rename(cluster.a.mountpoint / "latest")
    assert (cluster.storage.backing / "latest").read_text() == "step 1"
    assert (cluster.b.mountpoint / "latest").read_text() == "step 20"
    assert os.listdir(cluster.c.mountpoint) == ["latest"]


def test_rmtree_by_another_node_cancels_what_the_owner_would_publish(cluster: Cluster) -> None:
    directory = cluster.a.mountpoint / "old"
    directory.mkdir()
    for index in range(5):
        (directory / f"shard{index}").write_bytes(b"x" * 1000)
    shutil.rmtree(cluster.b.mountpoint / "old")
    assert not (cluster.c.mountpoint / "old").exists()
    eventually(lambda: not directory.exists(), timeout_s=STALE_S)
    cluster.storage.clear()
    cluster.a.wait("durable")
    assert not (cluster.storage.backing / "old").exists()


def test_the_last_close_wins_and_is_reported(cluster: Cluster) -> None:
    (cluster.a.mountpoint / "pointer").write_text("of a")
    (cluster.b.mountpoint / "pointer").write_text("of node b")
    assert (cluster.c.mountpoint / "pointer").read_text() == "of node b"
    eventually(
        lambda: (cluster.a.mountpoint / "pointer").read_text() == "of node b", timeout_s=STALE_S
    )
    problems = [p for p in cluster.a.report()["problems"] if p["code"] == "WrittenTwice"]
    assert problems and "pointer" in problems[-1]["detail"] and "b" in problems[-1]["detail"]
    cluster.storage.clear()
    cluster.a.wait("durable")
    cluster.b.wait("durable")
    assert (cluster.storage.backing / "pointer").read_text() == "of node b"


def test_another_node_appends_renames_and_links(cluster: Cluster) -> None:
    (cluster.a.mountpoint / "log").write_bytes(b"a" * 5 * MIB)
    with (cluster.b.mountpoint / "log").open("ab") as file:
        file.write(b"b")
    assert content_of(cluster.c.mountpoint / "log") == b"a" * 5 * MIB + b"b"
    (cluster.c.mountpoint / "log").rename(cluster.c.mountpoint / "log.1")
    for path in cluster.everywhere("log.1"):
        assert content_of(path) == b"a" * 5 * MIB + b"b"
    eventually(lambda: not (cluster.a.mountpoint / "log").exists(), timeout_s=STALE_S)
    cluster.storage.clear()
    for node in (cluster.a, cluster.b, cluster.c):
        node.wait("durable")
    assert listed(cluster.storage.backing) == ["log.1"]
    assert (cluster.storage.backing / "log.1").read_bytes() == b"a" * 5 * MIB + b"b"


def test_a_directory_renamed_before_its_files_are_durable(cluster: Cluster) -> None:
    for node, shard in ((cluster.a, "s0"), (cluster.b, "s1")):
        (node.mountpoint / "ckpt.tmp").mkdir(exist_ok=True)
        (node.mountpoint / "ckpt.tmp" / shard).write_text(shard)
    (cluster.a.mountpoint / "ckpt.tmp").rename(cluster.a.mountpoint / "ckpt")
    for path in cluster.everywhere("ckpt"):
        eventually(path.exists, timeout_s=STALE_S)
        assert (path / "s0").read_text() == "s0" and (path / "s1").read_text() == "s1"
        assert sorted(os.listdir(path)) == ["s0", "s1"]
    assert not (cluster.c.mountpoint / "ckpt.tmp").exists()
    cluster.storage.clear()
    for node in (cluster.a, cluster.b):
        node.wait("durable")
    assert sorted(os.listdir(cluster.storage.backing / "ckpt")) == ["s0", "s1"]


def test_a_symbolic_link_is_seen(cluster: Cluster) -> None:
    (cluster.a.mountpoint / "data").write_text("content")
    (cluster.a.mountpoint / "newest").symlink_to("data")
    for path in cluster.everywhere("newest"):
        assert path.readlink() == Path("data") and path.read_text() == "content"


def test_after_the_commit_the_source_speaks(cluster: Cluster) -> None:
    (cluster.a.mountpoint / "f").write_bytes(b"f" * MIB)
    with (cluster.b.mountpoint / "f").open("rb") as file:
        assert file.read(10) == b"f" * 10
        cluster.storage.clear()
        cluster.a.wait("durable", "f")
        assert file.read() == b"f" * (MIB - 10)
    assert content_of(cluster.c.mountpoint / "f") == b"f" * MIB


def test_a_replica_is_read_when_the_owner_is_gone(cluster: Cluster) -> None:
    content = os.urandom(10 * MIB)
    (cluster.a.mountpoint / "shard").write_bytes(content)
    cluster.a.wait("replicated", "shard")
    daemon = cluster.a.pid()
    import signal

    os.kill(daemon, signal.SIGSTOP)
    try:
        assert content_of(cluster.b.mountpoint / "shard") == content
        assert content_of(cluster.c.mountpoint / "shard") == content
    finally:
        os.kill(daemon, signal.SIGCONT)


def test_the_next_daemon_tells_and_serves_what_the_last_one_had(cluster: Cluster) -> None:
    (cluster.a.mountpoint / "before").write_bytes(b"b" * MIB)
    assert content_of(cluster.b.mountpoint / "before") == b"b" * MIB
    for node in (cluster.a, cluster.b):
        daemon = node.daemon()
        node.kill_only_daemon()
        node.wait_for_another(daemon)
    (cluster.a.mountpoint / "after").write_bytes(b"a" * MIB)
    for path in cluster.everywhere("before"):
        assert content_of(path) == b"b" * MIB
    for path in cluster.everywhere("after"):
        assert content_of(path) == b"a" * MIB


def test_a_file_that_only_the_source_and_a_peer_have_is_read_when_the_source_fails(
    cluster: Cluster,
) -> None:
    content = os.urandom(6 * MIB)
    cluster.storage.clear()
    path = cluster.a.mountpoint / "kept"
    path.write_bytes(content)
    cluster.a.wait("replicated", "kept")
    cluster.a.wait("durable", "kept")
    run("evict", path)
    assert os.listdir(cluster.a.mountpoint) == ["kept"]
    with cluster.storage.fault(Fault(errno="EIO", ops=("open", "read"), name="kept")):
        assert path.read_bytes() == content
