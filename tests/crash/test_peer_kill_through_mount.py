"""The peer of a real mount dies, forgets, or is not let in; the mount says so and loses nothing."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachexfs.demo.faults import Fault
from cachexfs.demo.faulty_storage import FaultyStorage
from tests.cluster_of_nodes import Node, eventually, nodes, run

pytestmark = pytest.mark.fuse

LARGE_BYTES = 96 << 20
CAPTURED = '[mount]\nfsync = "captured"\npfs_timeout = "1s"\n'


@pytest.fixture
def stuck(tmp_path: Path, faulty_storage: FaultyStorage) -> Iterator[tuple[Node, Node]]:
    """A pair whose source takes no writes, so that nothing becomes durable."""
    with nodes(tmp_path, "ab", source=faulty_storage.mountpoint, extra=CAPTURED) as (a, b):
        b.start_peer()
        a.mount()
        faulty_storage.set_fault(Fault(errno="EIO", ops=("create", "write")))
        try:
            yield a, b
        finally:
            faulty_storage.clear()


def state(node: Node, name: str) -> str:
    """What `ls` says of one file."""
    return str(node.ls(name)[0]["state"])


def recovered(a: Node, b: Node, target: Path) -> dict[str, bytes]:
    """What the peer holds."""
    shutil.rmtree(target, ignore_errors=True)
    run("recover", "--to", target, "--from", f"127.0.0.1:{b.port}", "-c", a.config)
    return {str(p.relative_to(target)): p.read_bytes() for p in target.rglob("*") if p.is_file()}


def test_killed_in_the_middle_of_a_transfer(stuck: tuple[Node, Node], tmp_path: Path) -> None:
    a, b = stuck
    data = random.Random(1).randbytes(1 << 20) * (LARGE_BYTES >> 20)
    outside = {p for p in tmp_path.rglob("*") if not p.is_relative_to(b.store)}
    (a.mountpoint / "large").write_bytes(data)
    for after_s in (0.02, 0.05, 0.1):
        time.sleep(after_s)
        b.stop_peer(signal.SIGKILL)
        assert (a.mountpoint / "large").read_bytes()[-100:] == data[-100:]
        b.start_peer()
    a.wait("replicated", "large")
    assert a.ls("large")[0]["replicas"] == ["b"]
    assert recovered(a, b, tmp_path / "recovered") == {"large": data}
    new = (
        {p for p in tmp_path.rglob("*") if not p.is_relative_to(b.store) and p not in outside}
        - set((tmp_path / "recovered").rglob("*"))
        - {tmp_path / "recovered"}
    )
    assert {p.name for p in new} <= {"large", "peer.log"} | {p.name for p in a.state.rglob("*")}


def test_writing_goes_on_while_the_peer_is_away(stuck: tuple[Node, Node], tmp_path: Path) -> None:
    a, b = stuck
    (a.mountpoint / "before").write_bytes(b"before")
    a.wait("replicated", "before")
    b.stop_peer(signal.SIGKILL)
    for index in range(20):
        (a.mountpoint / f"f{index}").write_bytes(b"%d" % index * 1000)
    (a.mountpoint / "before").unlink()
    (a.mountpoint / "f0").rename(a.mountpoint / "g0")
    (a.mountpoint / "f1").write_bytes(b"again")
    eventually(lambda: "PeerUnreachable" in {p["code"] for p in a.report()["problems"]}, "it", 10)
    assert a.report()["peers"][0]["state"] == "down" and a.report()["unsafe_bytes"] > 0
    b.start_peer()
    a.wait("replicated")
    expected = {f"f{i}": b"%d" % i * 1000 for i in range(2, 20)} | {
        "g0": b"0" * 1000, "f1": b"again",
    }  # fmt: skip
    eventually(lambda: recovered(a, b, tmp_path / "recovered") == expected, "the same there", 10)


def test_the_mount_is_killed_while_the_peer_is_away(
    stuck: tuple[Node, Node], tmp_path: Path
) -> None:
    a, b = stuck
    for name in ("kept", "deleted", "renamed"):
        (a.mountpoint / name).write_bytes(name.encode())
    a.wait("replicated")
    b.stop_peer(signal.SIGKILL)
    (a.mountpoint / "deleted").unlink()
    (a.mountpoint / "renamed").rename(a.mountpoint / "moved")
    (a.mountpoint / "late").write_bytes(b"late")
    (a.mountpoint / "link").symlink_to("kept")
    a.kill_mount()
    a.mount()
    b.start_peer()
    a.wait("replicated")
    expected = {"kept": b"kept", "moved": b"renamed", "late": b"late", "link": b"kept"}
    eventually(lambda: recovered(a, b, tmp_path / "recovered") == expected, "the same there", 10)


def test_a_peer_that_lost_its_store_gets_everything_again(
    stuck: tuple[Node, Node], tmp_path: Path
) -> None:
    a, b = stuck
    (a.mountpoint / "directory").mkdir()
    (a.mountpoint / "directory" / "file").write_bytes(b"file")
    (a.mountpoint / "link").symlink_to("directory/file")
    a.wait("replicated")
    b.stop_peer(signal.SIGKILL)
    shutil.rmtree(b.store)
    (a.mountpoint / "another").write_bytes(b"another")
    b.start_peer()
    a.wait("replicated", "another")
    eventually(lambda: {f["state"] for f in a.ls()} == {"replicated"}, "replication", 10)
    eventually(
        lambda: (
            recovered(a, b, tmp_path / "r")
            == {"directory/file": b"file", "another": b"another", "link": b"file"}
        ),
        "the same there",
        10,
    )


def test_a_state_is_not_claimed_for_what_a_peer_forgot(
    tmp_path: Path, faulty_storage: FaultyStorage
) -> None:
    with nodes(tmp_path, "ab", source=faulty_storage.mountpoint, extra=CAPTURED) as (a, b):
        b.start_peer()
        a.mount()
        faulty_storage.set_fault(Fault(errno="EIO", ops=("create", "write")))
        (a.mountpoint / "file").write_bytes(b"file")
        a.wait("replicated")
        b.stop_peer()
        shutil.rmtree(b.store)
        b.store.mkdir()
        b.start_peer()
        eventually(lambda: "came back without its replicas" in a.log, "the line in the log", 10)
        eventually(lambda: state(a, "file") == "replicated", "replication", 10)
        assert recovered(a, b, tmp_path / "r") == {"file": b"file"}
        faulty_storage.clear()


def test_a_wrong_secret_is_a_clear_problem_and_nothing_is_lost(tmp_path: Path) -> None:
    with nodes(tmp_path, "ab", extra=CAPTURED) as (a, b):
        assert b.secret is not None
        other = tmp_path / "other"
        other.write_text("another secret altogether")
        other.chmod(0o600)
        good, b.secret = b.secret, other
        b.start_peer()
        a.mount()
        (a.mountpoint / "file").write_bytes(b"file")

        def said() -> bool:
            problems = a.report()["problems"]
            return any("secret" in p["detail"] and p["code"].startswith("Peer") for p in problems)

        eventually(said, "the problem in status", 10)
        a.wait("durable")
        assert (a.source / "file").read_bytes() == b"file"
        assert a.ls("file")[0]["replicas"] == []
        log = (b.home / "peer.log").read_text()
        assert "secret" in log and "Traceback" not in log
        b.stop_peer()
        b.secret = good
        b.start_peer()
        eventually(lambda: a.report()["state"] == "ok", "being well", 10)
        (a.mountpoint / "file2").write_bytes(b"file2")
        eventually(lambda: a.ls("file2")[0]["replicas"] == ["b"], "replication", 10)
        assert os.listdir(a.source) and a.report()["peers"][0]["state"] == "up"
