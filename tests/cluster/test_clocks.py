"""Nodes whose clocks are hours apart: what is closed later counts, and no promise is broken."""

from __future__ import annotations

import os
import pickle
import shutil
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachexfs import claims
from cachexfs.demo.faults import Fault
from cachexfs.demo.faulty_storage import FaultyStorage
from tests.cluster_of_nodes import Node, eventually, nodes, run

pytestmark = [pytest.mark.root, pytest.mark.fuse]
FULL = Fault(errno="EDQUOT", ops=("write",), name=".cachexfs-*.tmp")
AHEAD_S = {"a": 3600, "b": 0, "c": -7200}
SEEN_S = 1.5
"""The kernel may go on for a second with what it has seen (`attributes.TIMEOUT_S`)."""
EXTRA = """
[mount]
fsync = "replicated"
[ram]
limit = "256MiB"
"""


class Cluster:
    """Three nodes with clocks of their own; the source takes no files until it is made well."""

    def __init__(self, storage: FaultyStorage, made: list[Node]) -> None:
        self.storage = storage
        self.nodes = made
        self.a, self.b, self.c = made


def start(node: Node, what: str) -> None:
    """Start a daemon of a node, by the node's clock."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "other_clock"))
        patch.setenv("CLOCK_AHEAD_S", str(AHEAD_S[node.name]))
        node.start_peer() if what == "peer" else node.mount()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    base = tmp_path_factory.mktemp("clocks")
    backing, source = base / "backing", base / "source"
    backing.mkdir()
    source.mkdir()
    with FaultyStorage(backing, source) as storage, nodes(base, "abc", source, EXTRA) as made:
        for node in made:
            node.adopting = 'adopt_after = "2s"'
            start(node, "peer")
        for node in made:
            start(node, "mount")
        yield Cluster(storage, made)
        storage.clear()


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    eventually(lambda: (running.storage.backing / claims.DIRECTORY).is_dir())
    running.storage.set_fault(FULL)
    yield running
    running.storage.clear()


def save(path: Path, content: bytes) -> None:
    """Write and fsync: a promise that a peer has it."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def holds(node: Node, path: str, version_of: bytes) -> bool:
    """Whether the store of a node has a replica of a path with just this content."""
    with sqlite3.connect(f"file:{node.store}/manifest.db?mode=ro", uri=True) as manifest:
        query = "SELECT data FROM replica WHERE path = ? AND data IS NOT NULL"
        found = manifest.execute(query, (path.encode(),)).fetchone()
    return found is not None and (node.store / "data" / str(found[0])).read_bytes() == version_of


def is_kept(cluster: Cluster, owner: Node, path: str, content: bytes) -> bool:
    """Whether the peers that the owner counts on have what it closed last."""
    named = owner.ls(path)[0]["replicas"]
    return bool(named) and all(
        holds(node, path, content) for node in cluster.nodes if node.name in named
    )


def test_the_later_close_counts_and_is_kept_as_promised(cluster: Cluster) -> None:
    turns = [*cluster.nodes, cluster.b, cluster.a, cluster.c, cluster.a, cluster.b]
    for turn, node in enumerate(turns):
        content = f"step {turn} by {node.name}".encode()
        save(node.mountpoint / "latest", content)
        assert is_kept(cluster, node, "latest", content), content
        for other in cluster.nodes:
            path = other.mountpoint / "latest"
            eventually(lambda p=path, c=content: p.read_bytes() == c, str(content), SEEN_S)
    assert all(-1 < each["age_s"] < 60 for each in cluster.b.ls("latest"))
    cluster.storage.clear()
    for node in cluster.nodes:
        node.wait("durable")
    assert (cluster.storage.backing / "latest").read_bytes() == b"step 7 by b"


def test_what_one_deleted_another_makes_anew(cluster: Cluster) -> None:
    seen = [cluster.storage.backing, *(node.mountpoint for node in cluster.nodes)]

    def is_gone_everywhere() -> bool:
        return not any((top / "ckpt").exists() for top in seen)

    a, b, c = cluster.nodes
    for maker, deleter in ((a, b), (c, a), (a, b), (b, c)):
        (maker.mountpoint / "ckpt").mkdir()
        save(maker.mountpoint / "ckpt/shard", b"old")
        shutil.rmtree(deleter.mountpoint / "ckpt")
        eventually(is_gone_everywhere, "removal")
        (maker.mountpoint / "ckpt").mkdir()
        save(maker.mountpoint / "ckpt/shard", b"new")
        assert is_kept(cluster, maker, "ckpt/shard", b"new")
        shutil.rmtree(maker.mountpoint / "ckpt")
        eventually(is_gone_everywhere, "removal")
    cluster.storage.clear()
    for node in cluster.nodes:
        node.wait("durable")
    assert not (cluster.storage.backing / "ckpt").exists()


def test_a_checkpoint_of_all_is_recovered_whole_and_what_its_owner_left_is_adopted(
    cluster: Cluster, tmp_path: Path
) -> None:
    a, b, c = cluster.nodes
    cluster.storage.clear()
    save(a.mountpoint / "pointer", b"by a")
    a.wait("durable")
    ahead_ns = time.time_ns() + AHEAD_S["a"] * 10**9
    os.utime(cluster.storage.backing / "pointer", ns=(ahead_ns, ahead_ns))  # as a's kernel has it
    cluster.storage.set_fault(FULL)
    contents = {"__0_0.distcp": b"by c", "__1_0.distcp": b"by a", "__2_0.distcp": b"by b"}
    contents[".metadata"] = pickle.dumps(sorted(contents))
    (b.mountpoint / "run").mkdir()
    for node, (name, content) in zip((c, a, b, b), contents.items(), strict=True):
        save(node.mountpoint / "run" / name, content)
    save(b.mountpoint / "pointer", b"by b")
    b.kill_mount()
    b.stop_peer()
    run("recover", "--to", tmp_path / "to", "-c", c.config, "--volume", c.source, "--path", "run")
    found = {path.name: path.read_bytes() for path in (tmp_path / "to" / "run").iterdir()}
    assert found == contents
    cluster.storage.clear()
    backing = cluster.storage.backing
    for name, content in contents.items():
        path = backing / "run" / name
        eventually(lambda p=path, c=content: p.exists() and p.read_bytes() == c, name)
    eventually(lambda: (backing / "pointer").read_bytes() == b"by b", "the pointer")
