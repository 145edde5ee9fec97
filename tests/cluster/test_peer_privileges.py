"""What the peer's unit lets it do: keep replicas; and with its drop-in, bring them to the source.

No systemd is needed: the capabilities are those that the files name, and what a unit may not write
to is mounted read-only for it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cachexfs import claims
from cachexfs.demo.faults import Fault
from cachexfs.demo.faulty_storage import FaultyStorage
from tests.cluster_of_nodes import Node, eventually, nodes

pytestmark = [pytest.mark.root, pytest.mark.fuse]

DROP_IN = Path(__file__).parents[2] / "systemd/cachexfs-peer.service.d/adopt.conf.example"
READ_ONLY = 'mount -o bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
OWNER = (1234, 5678)
FULL = Fault(errno="EDQUOT", ops=("write",), name=".cachexfs-*.tmp")


def with_capabilities(names: str) -> list[str]:
    wanted = [f"+{name.lower().removeprefix('cap_')}" for name in names.split()]
    return ["setpriv", "--bounding-set", ",".join(["-all", *wanted]), "--inh-caps", "-all"]


def without_privileges(source: Path) -> list[str]:
    return ["unshare", "-m", "sh", "-c", READ_ONLY, str(source), *with_capabilities("")]


def with_drop_in() -> list[str]:
    lines = dict(line.split("=", 1) for line in DROP_IN.read_text().splitlines() if "=" in line[1:])
    return with_capabilities(lines["CapabilityBoundingSet"])


def save(node: Node) -> None:
    path = node.mountpoint / "shard"
    path.write_bytes(b"whole" * 1000)
    os.chown(path, *OWNER)
    path.chmod(0o640)
    node.wait("replicated")


def test_a_peer_that_may_not_adopt_says_so_and_one_that_may_does(tmp_path: Path) -> None:
    backing, source = tmp_path / "backing", tmp_path / "source"
    backing.mkdir()
    source.mkdir()
    with FaultyStorage(backing, source) as storage, nodes(tmp_path, "ab", source) as (a, b):
        b.adopting = 'adopt_after = "1s"'
        b.start_peer(without_privileges(source))
        a.mount()
        eventually(lambda: (backing / claims.DIRECTORY).is_dir(), "the mark on the source")
        storage.set_fault(FULL)
        save(a)
        a.kill_mount()
        storage.clear()
        log = b.home / "peer.log"
        eventually(lambda: "committed yet" in log.read_text(), "what stands in the way")
        assert "this peer may not write there" in log.read_text()
        assert not (backing / "shard").exists()
        b.stop_peer()
        b.start_peer(with_drop_in())
        eventually(lambda: (backing / "shard").exists(), "adoption")
        status = (backing / "shard").stat()
        assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (*OWNER, 0o640)
        assert (backing / "shard").read_bytes() == b"whole" * 1000
