"""Recovery on real hosts: with the shared file system silent, whatever it had before."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster_of_nodes import eventually
from tools.hosts import preflight
from tools.hosts.cluster import Cluster
from tools.hosts.host import Host

pytestmark = [pytest.mark.root, pytest.mark.fuse]
SIZE_BYTES = 5 << 20  # more than a chunk


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Four hosts in two racks: host1 has its copies on host3."""
    if sentence := preflight.missing("dir"):
        pytest.skip(sentence)
    with Cluster(nodes=4, fsync="replicated") as made:
        yield made


def write(host: Host, path: str, content: bytes) -> None:
    """By a program on a host, with fsync."""
    script = f"cat > {path} && sync {path}"
    host.exec(["sh", "-c", f"cd $CACHEXFS_MOUNT && {script}"], text=content.decode())


def read(host: Host, path: Path) -> bytes:
    """By a program on a host."""
    return host.exec(["cat", path]).stdout.encode()


def words(size_bytes: int = SIZE_BYTES) -> bytes:
    """Different each time, and text."""
    return os.urandom(size_bytes // 2).hex().encode()


def recover(host: Host, *arguments: str | Path) -> dict[str, Any]:
    """What `cachexfs recover` says it did."""
    done: dict[str, Any] = json.loads(host.cachexfs("recover", *arguments, "--json").stdout)
    return done


def state_of(host: Host, name: str) -> str:
    return str(host.ls(name)[0]["state"])


def lose(host: Host) -> None:
    host.kill()
    host.wipe()


def test_what_a_silent_source_has_comes_from_the_peers_and_stays_durable(cluster: Cluster) -> None:
    lost, other, content = cluster.host(1), cluster.host(2), words()
    cluster.block_pfs()
    write(lost, "f", content)  # at the peer first, so that the peer has it
    cluster.unblock_pfs()
    eventually(lambda: state_of(lost, "f") == "durable", "the flush")
    assert other.exec(["ls", other.mountpoint]).stdout == "f\n"
    on_disk = cluster.spec.home / "disk" / "f"
    before = on_disk.stat()
    cluster.block_pfs()
    lose(lost)
    assert recover(other, other.mountpoint)["recovered"] == ["f"]
    assert read(other, other.mountpoint / "f") == content
    assert state_of(other, "f") == "durable"
    again = recover(other, other.mountpoint)
    assert (again["recovered"], again["present"], again["said"][1:]) == ([], ["f"], [])
    cluster.unblock_pfs()
    other.cachexfs("wait", other.mountpoint / "f", "--for", "durable", "--timeout", "20s")
    assert (on_disk.stat().st_ino, on_disk.stat().st_mtime_ns) == (
        before.st_ino,
        before.st_mtime_ns,
    )
    assert read(other, other.mountpoint / "f") == content


def test_a_host_that_never_saw_the_directory_recovers_it_too(cluster: Cluster) -> None:
    lost, other, content = cluster.host(1), cluster.host(4), words()
    lost.exec(["mkdir", lost.mountpoint / "d"])
    cluster.block_pfs()
    write(lost, "d/f", content)
    cluster.unblock_pfs()
    eventually(lambda: state_of(lost, "d/f") == "durable", "the flush")
    cluster.block_pfs()
    lose(lost)
    assert "d/f" in recover(other, other.mountpoint)["recovered"]
    assert read(other, other.mountpoint / "d/f") == content
    cluster.unblock_pfs()
    other.cachexfs("wait", other.mountpoint / "d", "--for", "durable", "--timeout", "20s")
    eventually(lambda: read(other, other.mountpoint / "d/f") == content, "the same file")
    third = cluster.host(2)
    assert third.exec(["ls", third.mountpoint / "d"]).stdout == "f\n"
    assert (cluster.spec.home / "disk/d/f").read_bytes() == content


def test_recovering_over_an_older_version_leaves_no_tombstone(cluster: Cluster) -> None:
    lost, other, third = cluster.host(1), cluster.host(2), cluster.host(4)
    write(lost, "f", b"old")
    eventually(lambda: state_of(lost, "f") == "durable", "the flush")
    assert other.exec(["cat", other.mountpoint / "f"]).stdout == "old"
    cluster.block_pfs()
    write(lost, "f", b"new")
    lose(lost)
    assert recover(other, other.mountpoint)["recovered"] == ["f"]
    assert read(other, other.mountpoint / "f") == b"new"
    to = cluster.spec.home / "to"
    assert recover(third, "--to", to, "-c", third.config)["recovered"] == ["f"]
    assert (to / "f").read_bytes() == b"new"
    cluster.unblock_pfs()
    eventually(lambda: state_of(other, "f") == "durable", "the flush")
    assert (cluster.spec.home / "disk" / "f").read_bytes() == b"new"


TREE = (
    "mkdir d && mkdir -m 750 d/e && cp {0} d/e/f && chmod 640 d/e/f && chown 12:34 d/e/f && "
    "touch -d @1000000000.5 d/e/f && sync d/e/f && ln d/e/f d/e/g && ln -s e/f d/s"
)


def test_a_tree_comes_back_with_links_modes_owners_and_times(
    cluster: Cluster, tmp_path: Path
) -> None:
    lost, other = cluster.host(1), cluster.host(2)
    content = tmp_path / "content"
    content.write_bytes(words())
    cluster.block_pfs()
    made = TREE.format(shlex.quote(str(content)))
    lost.exec(["sh", "-c", f"cd $CACHEXFS_MOUNT && {made}"])
    lost.cachexfs("wait", lost.mountpoint / "d", "--for", "replicated")
    look = ["stat", "-c", "%n %f %u %g %h %s %Y", "d/e/f", "d/e/g"]
    modes = ["stat", "-c", "%n %f", "d", "d/e", "d/s"]
    expected = lost.exec(["env", "-C", lost.mountpoint, *look]).stdout
    assert "d/e/f 81a0 12 34 2" in expected and "1000000000" in expected
    expected_modes = lost.exec(["env", "-C", lost.mountpoint, *modes]).stdout
    lose(lost)
    recover(other, other.mountpoint)
    to = cluster.spec.home / "to"
    recover(other, "--to", to, "-c", other.config)
    for place in (other.mountpoint, to):
        assert other.exec(["env", "-C", place, *look]).stdout == expected, place
        assert other.exec(["env", "-C", place, *modes]).stdout == expected_modes, place
        assert other.exec(["readlink", place / "d/s"]).stdout == "e/f\n"
    assert read(other, other.mountpoint / "d/e/g") == content.read_bytes()
