"""The owner is killed; whoever holds its replicas brings them to the source, whole, once."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachexfs import claims
from cachexfs.demo.faults import Fault
from cachexfs.demo.faulty_storage import FaultyStorage
from tests.cluster_of_nodes import Node, eventually, nodes

pytestmark = [pytest.mark.root, pytest.mark.fuse]
MIB = 1 << 20
FULL = Fault(errno="EDQUOT", ops=("write",), name=".cachexfs-*.tmp")
ADOPT_S = 2.0
EXTRA = """
[mount]
fsync = "replicated"
[ram]
limit = "256MiB"
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FaultyStorage, list[Node]]]:
    base = tmp_path_factory.mktemp("owner")
    backing, source = base / "backing", base / "source"
    backing.mkdir()
    source.mkdir()
    with FaultyStorage(backing, source) as storage, nodes(base, "abc", source, EXTRA) as made:
        for node in made:
            node.adopting = f'adopt_after = "{ADOPT_S}s"'
            node.start_peer()
        yield storage, made


@pytest.fixture
def cluster(
    running: tuple[FaultyStorage, list[Node]],
) -> Iterator[tuple[FaultyStorage, list[Node]]]:
    """Three nodes of which `a` writes; the source takes no files until it is made well."""
    storage, made = running
    for node in made:
        if node.peer_process is None:
            node.start_peer()
        if not os.path.ismount(node.mountpoint):
            node.mount()
        (node.home / "state" / "adopted.json").unlink(missing_ok=True)
    eventually(lambda: (storage.backing / claims.DIRECTORY).is_dir())
    storage.set_fault(FULL)
    yield running
    storage.clear()
    if os.environ.get("KEEP_LOGS"):
        for node in made:
            Path(os.environ["KEEP_LOGS"], node.name).write_text(node.log)
            peer = (node.home / "peer.log").read_text()
            Path(os.environ["KEEP_LOGS"], f"{node.name}-peer").write_text(peer)
    if not os.path.ismount(made[0].mountpoint):  # it would come back with what it had
        made[0].stop_peer()
        made[0].wipe()
    shutil.rmtree(storage.backing / "ckpt")


def save(node: Node, count: int = 4) -> dict[str, bytes]:
    """A checkpoint whose files were all promised `replicated`."""
    directory = node.mountpoint / "ckpt"
    directory.mkdir()
    contents = {f"shard{i}": os.urandom(MIB * i + i) for i in range(1, count)}
    contents["latest"] = b"step 1"
    for name, content in contents.items():
        with (directory / name).open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(directory / name, 0o640)
    return contents


def on_source(storage: FaultyStorage, contents: dict[str, bytes]) -> bool:
    directory = storage.backing / "ckpt"
    return all(
        (directory / name).exists() and (directory / name).read_bytes() == content
        for name, content in contents.items()
    )


def adopted(node: Node) -> list[dict[str, object]]:
    path = node.home / "state" / "adopted.json"
    return list(json.loads(path.read_text())) if path.exists() else []


def test_what_was_replicated_becomes_durable_once(
    cluster: tuple[FaultyStorage, list[Node]],
) -> None:
    storage, (a, b, c) = cluster
    contents = save(a)
    a.kill_mount()
    a.stop_peer()
    storage.clear()
    eventually(lambda: on_source(storage, contents), "adoption")
    for name in contents:
        status = (storage.backing / "ckpt" / name).stat()
        assert status.st_mode & 0o777 == 0o640
    assert not list((storage.backing / "ckpt").glob(".cachexfs-adopted-*"))
    eventually(lambda: len(adopted(b)) + len(adopted(c)) == len(contents), "its note")
    reports = b.report()["adopted"] + c.report()["adopted"]
    assert sorted(each["path"] for each in reports) == sorted(f"ckpt/{n}" for n in contents)
    assert {each["owner"] for each in reports} == {"a"}
    assert {each["result"] for each in reports} == {"committed"}
    (b.mountpoint / "ckpt" / "latest").write_text("step 2")
    b.wait("durable")
    time.sleep(2)
    assert (storage.backing / "ckpt" / "latest").read_text() == "step 2"


STEPS = {
    "copied, without attributes": Fault(errno="EIO", ops=("setattr",), name=".cachexfs-*.tmp"),
    "copied, not on disk": Fault(errno="EIO", ops=("fsync",), name=".cachexfs-*.tmp"),
    "copied, not in place": Fault(errno="EIO", ops=("rename",), name=".cachexfs-*.tmp"),
    "some in place": Fault(errno="EDQUOT", ops=("write",), name=".cachexfs-*.tmp", count=2),
}
"""How far the owner gets before it is killed; "nothing copied" is the test above."""


@pytest.mark.parametrize("step", STEPS)
def test_the_owner_is_killed_at_any_step(
    cluster: tuple[FaultyStorage, list[Node]], step: str
) -> None:
    storage, (a, b, c) = cluster
    storage.set_fault(STEPS[step])
    contents = save(a, 3)
    eventually(lambda: len(os.listdir(storage.backing / "ckpt")) > 0, "a beginning")
    a.kill_mount()
    a.stop_peer()
    storage.clear()
    eventually(lambda: on_source(storage, contents), "adoption")
    eventually(lambda: len(adopted(b)) + len(adopted(c)) > 0, "its note")
    names = [str(each["path"]) for each in adopted(b) + adopted(c)]
    assert len(set(names)) == len(names)


def test_an_owner_that_returns_undoes_nothing(cluster: tuple[FaultyStorage, list[Node]]) -> None:
    storage, (a, b, _) = cluster
    contents = save(a)
    a.kill_mount()  # its RAM tier and its journal survive
    storage.clear()
    eventually(lambda: on_source(storage, contents), "adoption")
    (b.mountpoint / "ckpt" / "latest").write_text("step 2, by b")
    b.wait("durable")
    a.mount()
    a.wait("durable", timeout_s=30)
    assert (storage.backing / "ckpt" / "latest").read_text() == "step 2, by b"
    assert (a.mountpoint / "ckpt" / "latest").read_text() == "step 2, by b"
    del contents["latest"]
    assert on_source(storage, contents)


def test_nothing_is_adopted_from_an_owner_that_lives(
    cluster: tuple[FaultyStorage, list[Node]],
) -> None:
    storage, (a, b, c) = cluster
    contents = save(a)
    time.sleep(ADOPT_S + 2)
    assert adopted(b) == adopted(c) == []
    storage.clear()
    a.wait("durable")
    assert on_source(storage, contents)
    time.sleep(1)
    assert adopted(b) == adopted(c) == []


def test_what_another_node_deleted_or_replaced_does_not_come_back(
    cluster: tuple[FaultyStorage, list[Node]],
) -> None:
    storage, (a, b, _) = cluster
    contents = save(a)
    a.kill_mount()
    a.stop_peer()
    (b.mountpoint / "ckpt" / "shard1").unlink()
    (b.mountpoint / "ckpt" / "latest").write_text("by b")
    storage.clear()
    for name in ("shard2", "shard3"):
        path = storage.backing / "ckpt" / name
        eventually(lambda p=path, n=name: p.exists() and p.read_bytes() == contents[n], name)
    b.wait("durable")
    time.sleep(2)
    shown = [name for name in os.listdir(storage.backing / "ckpt") if not name.startswith(".")]
    assert sorted(shown) == ["latest", "shard2", "shard3"]
    assert (storage.backing / "ckpt" / "latest").read_text() == "by b"
