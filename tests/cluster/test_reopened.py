"""Files that another node replaces, removes or makes anew while a kernel still knows the name."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachexfs.demo.faults import Fault
from cachexfs.mount.standing import BELIEVED_S
from cachexfs.peers.homes import NEGATIVE_S
from tests.three_nodes import Cluster, three_nodes

pytestmark = [pytest.mark.root, pytest.mark.fuse]
FULL = Fault(errno="EDQUOT", ops=("write",), name=".cachexfs-*.tmp")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with three_nodes(tmp_path_factory.mktemp("reopened"), "captured") as made:
        yield made


def known_everywhere(cluster: Cluster, path: str, content: bytes) -> list[Path]:
    """A file that is durable, and that every node has just read: its kernel knows the name."""
    (cluster.a.mountpoint / path).write_bytes(content)
    cluster.a.wait("durable", path)
    paths = cluster.everywhere(path)
    assert [each.read_bytes() for each in paths] == [content] * 3
    forgotten()
    return paths


def forgotten() -> None:
    """What was looked up is not believed any more, except by the kernel."""
    time.sleep(1.5 * max(BELIEVED_S, NEGATIVE_S))


@pytest.mark.parametrize("removed", [False, True])
@pytest.mark.parametrize("is_full", [False, True])
def test_what_was_closed_last_is_read_at_once(
    cluster: Cluster, removed: bool, is_full: bool
) -> None:
    path = f"f-{removed}-{is_full}"
    known_everywhere(cluster, path, b"old")
    if is_full:
        cluster.storage.set_fault(FULL)
    for round_ in range(6):
        writer = cluster.nodes[round_ % 3].mountpoint / path
        if removed:
            writer.unlink()
        writer.write_bytes(b"new %d" % round_)
        found = [each.read_bytes() for each in cluster.everywhere(path)]
        assert found == [b"new %d" % round_] * 3
        forgotten()
    cluster.storage.clear()


def test_an_append_goes_behind_what_another_node_has_appended(cluster: Cluster) -> None:
    paths = known_everywhere(cluster, "log", b"")
    with cluster.storage.fault(FULL):
        for index in range(9):
            with paths[index % 3].open("ab") as file:
                file.write(b"%d" % index)
            forgotten()
        assert [path.read_bytes() for path in paths] == [b"012345678"] * 3


def test_what_another_node_has_removed_is_not_opened(cluster: Cluster) -> None:
    a, b, _ = known_everywhere(cluster, "gone", b"old")
    with b.open("rb") as file:
        forgotten()
        a.unlink()
        with pytest.raises(FileNotFoundError):
            b.read_bytes()
        assert file.read() == b"old"
        again = os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY)  # it has no other name
        os.close(again)
