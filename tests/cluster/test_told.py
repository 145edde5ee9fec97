"""What the members are told: other names, later attributes, directories that only nodes have."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachexfs.demo.faults import Fault
from tests.cluster_of_nodes import eventually, run
from tests.three_nodes import Cluster, three_nodes

pytestmark = [pytest.mark.root, pytest.mark.fuse]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with three_nodes(tmp_path_factory.mktemp("told"), "replicated") as made:
        yield made


def from_stores(cluster: Cluster, to: Path, prefix: str) -> Path:
    """What comes back of a directory from the stores of `b` and `c` alone."""
    stores = [f"127.0.0.1:{node.port}" for node in (cluster.b, cluster.c)]
    asked = [each for store in stores for each in ("--from", store)]
    done = run(
        "recover", "--to", to, *asked, "--path", prefix, "-c", cluster.c.config, "--json",
        check=False,
    )  # fmt: skip
    assert not json.loads(done.stdout)["damaged"], done.stderr
    return to / prefix


def test_a_new_content_is_known_under_all_names(cluster: Cluster, tmp_path: Path) -> None:
    directory = cluster.a.mountpoint / "linked"
    directory.mkdir()
    for name in ("f", "a"):
        if name == "f":
            (directory / "f").write_bytes(b"old")
        else:
            os.link(directory / "f", directory / "a")
    cluster.a.wait("durable", "linked")
    with (directory / "f").open("ab") as file:
        file.write(b" and new")
        os.fsync(file.fileno())
    os.chmod(directory / "a", 0o640)
    cluster.a.wait("durable", "linked")

    def both() -> bool:
        there = from_stores(cluster, tmp_path / "to", "linked")
        found = [there / "f", there / "a"]
        return all(
            path.read_bytes() == b"old and new" and path.stat().st_mode & 0o777 == 0o640
            for path in found
        )

    eventually(both, "both names")


def test_a_directory_that_is_changed_later_comes_back_as_it_is(
    cluster: Cluster, tmp_path: Path
) -> None:
    directory = cluster.a.mountpoint / "changed"
    directory.mkdir()
    os.chmod(directory, 0o750)
    (directory / "f").write_bytes(b"f")
    cluster.a.wait("durable", "changed")
    os.chown(directory, 12, 34)
    run("evict", directory / "f")
    os.chmod(directory / "f", 0o600)

    def same() -> bool:
        there = from_stores(cluster, tmp_path / "to", "changed")
        found, file = there.stat(), (there / "f").stat()
        return (found.st_mode & 0o777, found.st_uid, found.st_gid) == (0o750, 12, 34) and (
            file.st_mode & 0o777 == 0o600
        )

    eventually(same, "the directory")


def test_a_directory_that_several_nodes_made_while_the_source_hangs_is_one(
    cluster: Cluster,
) -> None:
    for node in (cluster.a, cluster.b):
        (node.mountpoint / "silent").mkdir(exist_ok=True)
        assert os.listdir(node.mountpoint / "silent") == []
    with cluster.storage.fault(Fault(hang=True)):
        for node in (cluster.a, cluster.b):
            os.makedirs(node.mountpoint / "silent" / "x" / "y")
        for index, (writer, reader) in enumerate(((cluster.a, cluster.b), (cluster.b, cluster.a))):
            (writer.mountpoint / "silent/x/y" / f"f{index}").write_bytes(b"%d" % index)
            assert (reader.mountpoint / "silent/x/y" / f"f{index}").read_bytes() == b"%d" % index
        for node in (cluster.a, cluster.b):
            assert sorted(os.listdir(node.mountpoint / "silent/x/y")) == ["f0", "f1"]
    for node in (cluster.a, cluster.b):
        node.wait("durable", "silent")
    assert sorted(os.listdir(cluster.storage.backing / "silent/x/y")) == ["f0", "f1"]
    for node in (cluster.a, cluster.b, cluster.c):
        eventually(
            lambda node=node: sorted(os.listdir(node.mountpoint / "silent/x/y")) == ["f0", "f1"],
            "the same directory",
        )
