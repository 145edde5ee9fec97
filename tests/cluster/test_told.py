"""What the members are told: other names, later attributes, directories that only nodes have."""

from __future__ import annotations

import errno
import json
import os
import time
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
            os.makedirs(node.mountpoint / "silent" / "x" / "y", exist_ok=True)
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


def test_a_directory_that_one_node_made_while_the_source_hangs_is_seen_by_all(
    cluster: Cluster,
) -> None:
    for node in cluster.nodes:
        (node.mountpoint / "one").mkdir(exist_ok=True)
        assert os.listdir(node.mountpoint / "one") == []
    of_a, of_b, of_c = cluster.everywhere("one")
    with cluster.storage.fault(Fault(hang=True)):
        (of_a / "x/y").mkdir(parents=True, mode=0o750)
        assert [os.listdir(each) for each in (of_a, of_b, of_c)] == [["x"]] * 3
        assert (of_b / "x/y").stat().st_mode == (of_a / "x/y").stat().st_mode
        with pytest.raises(FileExistsError):
            (of_c / "x").mkdir()
        (of_a / "x/y/of-a").write_bytes(b"a")
        assert (of_b / "x/y/of-a").read_bytes() == b"a"
        (of_b / "x/y/of-b").write_bytes(b"b")  # by whom it was not made
        (of_b / "x/z").mkdir()
        (of_a / "x/tmp/deep").mkdir(parents=True)
        (of_a / "x/tmp/deep/f").write_bytes(b"f")
        with pytest.raises(OSError) as caught:
            (of_c / "x/tmp").rename(of_c / "x/ckpt")
        assert caught.value.errno == errno.EXDEV
        (of_a / "x/tmp").rename(of_a / "x/ckpt")
        time.sleep(1.1)  # as long as a kernel believes a name
        for each in (of_a, of_b, of_c):
            assert sorted(os.listdir(each / "x")) == ["ckpt", "y", "z"]
            assert sorted(os.listdir(each / "x/y")) == ["of-a", "of-b"]
            assert (each / "x/y/of-b").read_bytes() == b"b"
            assert (each / "x/ckpt/deep/f").read_bytes() == b"f"
        (of_c / "x/z").rmdir()
        time.sleep(1.1)
        assert not any((each / "x/z").exists() for each in (of_a, of_b, of_c))
    for node in cluster.nodes:
        node.wait("durable", "one")

    def same() -> bool:
        return all(
            os.listdir(each) == ["x"]
            and sorted(os.listdir(each / "x")) == ["ckpt", "y"]
            and sorted(os.listdir(each / "x/y")) == ["of-a", "of-b"]
            and os.listdir(each / "x/ckpt/deep") == ["f"]
            for each in (of_a, of_b, of_c, cluster.storage.backing / "one")
        )

    eventually(same, "the same directories")


def test_who_is_in_a_directory_of_another_node_stays_in_it(cluster: Cluster) -> None:
    of_a, of_b, _ = cluster.everywhere("two")
    with cluster.storage.fault(Fault(hang=True)):
        (of_a / "x").mkdir(parents=True)
        inside = os.open(of_b / "x", os.O_RDONLY | os.O_DIRECTORY)
        number = os.fstat(inside).st_ino
    cluster.a.wait("durable", "two")
    eventually(lambda: (cluster.storage.backing / "two/x").is_dir(), "the directory")
    (of_a / "x/f").write_bytes(b"f")
    with os.fdopen(os.open("f", os.O_RDONLY, dir_fd=inside), "rb") as file:
        assert file.read() == b"f"
    assert os.listdir(inside) == ["f"] and (of_b / "x").stat().st_ino == number
    os.close(inside)
