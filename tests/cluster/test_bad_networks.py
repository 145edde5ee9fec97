"""Hosts that are cut off, stopped or slow: nothing is lost, doubled or undone, and waits end.

The bounds come from the time limits of the code, with room for a machine that has much to do:

    a lookup, a listing    homes.WAIT_S for each of two homes, then they are not asked for a while
    a read of a file       fetching.LIMITS_S (2 s, then 10 s) for each that has it
    an fsync               sender.ANSWER_S (10 s) until a dead link is noticed, DOWN_AFTER_S (3 s)
                           and a review (1 s) until another partner is taken; or the source has it
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cachexfs import claims
from cachexfs.config import Config, Duration
from cachexfs.demo.faults import Fault
from tests.cluster_of_nodes import eventually
from tools.hosts import preflight
from tools.hosts.cluster import Cluster
from tools.hosts.directory import set_faults
from tools.hosts.errors import ClusterError
from tools.hosts.host import Host

pytestmark = [pytest.mark.root, pytest.mark.fuse]
MIB = 1 << 20
FULL = Fault(errno="EDQUOT", ops=("write",), name=".cachexfs-*.tmp")
ADOPT_S = 4.0
LOOKUP_WITHIN_S = 10.0
READ_WITHIN_S = 25.0
FSYNC_WITHIN_S = 25.0

PROGRAM = """
import hashlib, os, sys, time
what, path, seed, size = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
begin = time.monotonic()
if what == "read":
    with open(path, "rb") as file:
        said = hashlib.sha256(file.read()).hexdigest()
elif what == "list":
    said = " ".join(sorted(os.listdir(path)))
else:
    with open(path, "wb") as file:
        file.write((seed.encode() * (size // len(seed) + 1))[:size])
        if what == "fsync":
            file.flush()
            os.fsync(file.fileno())
    said = what
print(time.monotonic() - begin, said)
"""


def content(seed: str, size: int) -> bytes:
    """What a program writes for a seed."""
    return (seed.encode() * (size // len(seed) + 1))[:size]


def quick(config: Config) -> Config:
    """A silent host counts as dead after seconds."""
    assert config.peer is not None
    return msgspec.structs.replace(
        config, peer=msgspec.structs.replace(config.peer, adopt_after=Duration(ADOPT_S))
    )


class Stage:
    """Four hosts over one directory, two in each rack: partners are in the other one."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.hosts = cluster.hosts
        self.disk = cluster.spec.home / "disk"
        self.expected: dict[str, bytes] = {}
        """What the source has at last."""

    def save(
        self,
        host: Host,
        path: str,
        seed: str,
        size: int = 1000,
        what: str = "fsync",
        within_s: float = FSYNC_WITHIN_S,
    ) -> float:
        """A program on a host writes a file; seconds that it took."""
        self.expected[path] = content(seed, size)
        took_s, _ = self.program(host, what, path, seed, size, within_s=within_s)
        return took_s

    def read(self, host: Host, path: str) -> str:
        """What a program on a host reads, as a digest."""
        return self.program(host, "read", path, within_s=READ_WITHIN_S)[1]

    def listed(self, host: Host, path: str = "") -> set[str]:
        """What a program on a host finds in a directory."""
        return set(self.program(host, "list", path, within_s=LOOKUP_WITHIN_S)[1].split())

    def program(
        self, host: Host, what: str, path: str, seed: str = "-", size: int = 0, *, within_s: float
    ) -> tuple[float, str]:
        """Seconds that it took, and what it said. Raises `TimedOut`, `ClusterError`."""
        line = [sys.executable, "-S", "-c", PROGRAM, what, host.mountpoint / path, seed, str(size)]
        took_s, _, said = host.exec(line, timeout_s=within_s).stdout.strip().partition(" ")
        return float(took_s), said

    def full(self, *hosts: Host) -> None:
        """The source takes no files from them."""
        for host in hosts:
            set_faults(host.place, [FULL])

    def well(self, *hosts: Host) -> None:
        """It does again."""
        for host in hosts:
            set_faults(host.place, [])

    def isolate(self, host: Host, do: Callable[[int, int], None]) -> None:
        """`partition` or `heal` it from all others."""
        for other in self.hosts:
            if other is not host:
                do(host.number, other.number)

    def holder_of(self, host: Host, path: str) -> Host:
        """Who has the replica of a file."""
        (name,) = host.ls(path)[0]["replicas"]
        return self.cluster.host(name)

    def is_said_to_be_written_twice(self, host: Host, path: str, other: Host) -> bool:
        """Whether `status` on a host says that another one has written this path too."""
        said = [p["detail"] for p in host.report()["problems"] if p["code"] == "WrittenTwice"]
        return any(each.startswith(f"{path}: ") and other.name in each for each in said)

    def adopted(self) -> list[dict[str, Any]]:
        """What was adopted anywhere."""
        return [each for host in self.hosts for each in _adopted_on(host)]

    def is_right(self) -> bool:
        """Whether the source has what it should, byte by byte, and nothing else."""
        return self.found() == self.expected

    def found(self) -> dict[str, bytes]:
        """What the source has, hidden files included."""
        paths = [path for path in self.disk.rglob("*") if path.is_file()]
        return {
            str(path.relative_to(self.disk)): path.read_bytes()
            for path in paths
            if path.parent.name != claims.DIRECTORY
        }

    def together(self) -> None:
        """All hosts have found each other again, after what the test before did to them."""
        eventually(
            lambda: all(
                peer["state"] == "up" for host in self.hosts for peer in host.report()["peers"]
            ),
            "all peers up",
        )

    def settle(self) -> None:
        """All of it reaches the source, and all hosts see the same."""
        for host in self.hosts:
            host.cachexfs("wait", host.mountpoint, "--for", "durable", "--timeout", "20")
        with contextlib.suppress(AssertionError):  # what is wrong is said better below
            eventually(self.is_right, "the source as expected")
        time.sleep(1.0 + ADOPT_S / 2)  # for what would undo it
        found = self.found()
        assert found.keys() == self.expected.keys()
        assert [p for p in found if found[p] != self.expected[p]] == [], self.adopted()
        for host in self.hosts:
            for path, wanted in self.expected.items():
                assert (host.mountpoint / path).read_bytes() == wanted, (host.name, path)


def _adopted_on(host: Host) -> list[dict[str, Any]]:
    path = host.state_dir / "adopted.json"
    return list(json.loads(path.read_text())) if path.exists() else []


@pytest.fixture(scope="module")
def running() -> Iterator[Stage]:
    if sentence := preflight.missing("dir"):
        pytest.skip(sentence)
    with Cluster(nodes=4, fsync="replicated", configure=quick) as made:
        yield Stage(made)


@pytest.fixture
def stage(running: Stage) -> Iterator[Stage]:
    """All is well before and after each test, and there is nothing."""
    running.expected.clear()
    for host in running.hosts:
        (host.state_dir / "adopted.json").unlink(missing_ok=True)
    yield running
    if os.environ.get("KEEP_LOGS"):
        for host in running.hosts:
            for log in host.state_dir.rglob("*.log"):
                Path(os.environ["KEEP_LOGS"], f"{host.name}-{log.name}").write_text(log.read_text())
    for host in running.hosts:
        host.cont()
        host.limit(None)
        running.isolate(host, running.cluster.heal)
        running.well(host)
    for entry in running.hosts[0].mountpoint.iterdir():
        subprocess.run(["rm", "-rf", entry], timeout=20, check=True)


def test_a_host_that_is_cut_off_from_all_but_the_source(stage: Stage) -> None:
    owner, *_ = stage.hosts
    stage.full(*stage.hosts)
    owner.exec(["mkdir", owner.mountpoint / "run"])
    stage.save(owner, "run/old", "old")
    stage.save(owner, "run/kept", "kept", 5 * MIB)
    cut = stage.holder_of(owner, "run/old")
    stage.well(cut)
    stage.isolate(cut, stage.cluster.partition)
    begin = time.monotonic()
    # It works on over the source, also where it cannot ask anybody.
    stage.save(cut, "alone", "alone")
    assert "alone" in stage.listed(cut) and stage.read(cut, "alone")
    # The others do not wait for it, and what it holds of them is theirs to bring or to delete.
    others = [host for host in stage.hosts if host is not cut]
    owner.exec(["rm", owner.mountpoint / "run/old"])
    del stage.expected["run/old"]
    written = ("by the owner", "by the one that is cut off")
    stage.save(owner, "both", written[0], what="close")
    stage.save(cut, "both", written[1])
    for host in others:
        assert stage.listed(host, "run") == {"kept"}
        assert stage.read(host, "run/kept") == stage.read(owner, "run/kept")
    stage.well(*others)
    while time.monotonic() - begin < 2 * ADOPT_S + 2:  # it takes nobody for dead, nor is it
        assert stage.adopted() == [] and not (stage.disk / "run/old").exists()
        time.sleep(0.2)
    stage.isolate(cut, stage.cluster.heal)
    # Neither could hear of the other's close: what reached the source last is there, whole, and
    # they say so when they have met again.
    owner.cachexfs("wait", owner.mountpoint, "--for", "durable", "--timeout", "20")
    stage.expected["both"] = (stage.disk / "both").read_bytes()
    assert stage.expected["both"] in [content(seed, 1000) for seed in written]
    for host, other in ((owner, cut), (cut, owner)):
        eventually(lambda h=host, o=other: stage.is_said_to_be_written_twice(h, "both", o))
    stage.settle()
    assert stage.adopted() == []


def test_a_host_is_stopped_in_the_middle_of_a_checkpoint_and_goes_on(
    stage: Stage, tmp_path: Path
) -> None:
    stage.full(*stage.hosts)
    other = stage.cluster.host(3)
    stage.save(other, "first", "first")
    stopped = stage.holder_of(other, "first")  # an owner, and a partner of another
    reader = next(host for host in stage.hosts if host not in (other, stopped))
    stopped.exec(["mkdir", stopped.mountpoint / "ckpt"])
    for name, size in (("s1", 3 * MIB), ("s2", 5 * MIB + 7), ("s3", 10), ("latest", 1000)):
        stage.save(stopped, f"ckpt/{name}", name, size)
    stopped.limit("1mbit")  # what is closed now is at no peer when it is stopped
    stage.save(stopped, "ckpt/s4", "s4", 2 * MIB, "close")
    stopped.stop()
    begin = time.monotonic()
    with ThreadPoolExecutor() as pool:
        stage.well(*(host for host in stage.hosts if host is not stopped))
        only_there = pool.submit(stage.read, reader, "ckpt/s4")
        took_s: Future[float] = pool.submit(stage.save, other, "second", "second", 2 * MIB)
        for host in (other, reader):
            assert {"s1", "s2", "s3", "latest"} <= stage.listed(host, "ckpt")
            assert stage.read(host, "ckpt/s2") and stage.save(host, f"of {host.name}", host.name)
        replicated = ["s1", "s2", "s3", "latest"]
        eventually(lambda: len(stage.adopted()) == len(replicated), "adoption")
        for name in replicated:
            path = stage.disk / "ckpt" / name
            assert path.read_bytes() == stage.expected[f"ckpt/{name}"]
        # Life goes on: a newer pointer, and an old shard is removed.
        stage.save(other, "ckpt/latest", "the next step")
        other.cachexfs("wait", other.mountpoint / "ckpt/latest", "--for", "durable")
        reader.exec(["rm", reader.mountpoint / "ckpt/s1"])
        del stage.expected["ckpt/s1"]
        assert took_s.result() < FSYNC_WITHIN_S
        with contextlib.suppress(ClusterError):  # an error, as of any storage that is away
            only_there.result()
    assert time.monotonic() - begin < READ_WITHIN_S + 5
    stopped.cont()
    stopped.limit(None)
    stage.well(stopped)
    stage.settle()
    assert sorted(each["path"] for each in stage.adopted()) == sorted(
        f"ckpt/{name}" for name in replicated
    )
    assert {each["result"] for each in stage.adopted()} == {"committed"}


@pytest.mark.slow
@pytest.mark.parametrize("how", ["cut off", "stopped"])
def test_a_partner_is_lost_in_the_middle_of_a_transfer_and_comes_back(
    stage: Stage, how: str
) -> None:
    owner, *_ = stage.hosts
    stage.full(*stage.hosts)
    stage.save(owner, "deleted", "deleted")
    partner = stage.holder_of(owner, "deleted")
    others = [host for host in stage.hosts if host not in (owner, partner)]
    owner.limit("50mbit")
    with ThreadPoolExecutor() as pool:
        # It is sent twice over a link that takes 3 s for it.
        took_s = pool.submit(stage.save, owner, "big", "big", 16 * MIB, within_s=2 * FSYNC_WITHIN_S)
        time.sleep(0.5)
        if how == "stopped":
            partner.stop()
        else:
            stage.cluster.partition(owner.number, partner.number)
        for host in (owner, *others):
            assert "deleted" in stage.listed(host)
        assert took_s.result() < 2 * FSYNC_WITHIN_S
    owner.limit(None)
    assert stage.save(owner, "next", "next") < LOOKUP_WITHIN_S
    owner.exec(["rm", owner.mountpoint / "deleted"])
    del stage.expected["deleted"]
    stage.well(owner, *others)
    time.sleep(2 * ADOPT_S)
    if how == "stopped":
        partner.cont()
    else:
        stage.cluster.heal(owner.number, partner.number)
    stage.well(partner)
    time.sleep(2 * ADOPT_S)  # it holds what was deleted, and was not told
    stage.settle()
    assert stage.adopted() == []


@pytest.mark.slow
def test_a_slow_link_is_slow_and_nothing_else_is(stage: Stage) -> None:
    writer, slow, other, _ = stage.hosts
    stage.together()
    stage.full(*stage.hosts)
    stage.save(writer, "big", "big", 8 * MIB)
    slow.limit("20mbit")
    with ThreadPoolExecutor() as pool:
        digest = pool.submit(stage.read, slow, "big")
        for index in range(4):
            assert stage.save(other, f"of-other-{index}", f"{index}") < LOOKUP_WITHIN_S / 2
            took_s, _ = stage.program(slow, "read", f"of-other-{index}", within_s=LOOKUP_WITHIN_S)
            assert took_s < LOOKUP_WITHIN_S / 2
            assert f"of-other-{index}" in stage.listed(slow)
        assert digest.result() == stage.read(writer, "big")
        took = pool.submit(stage.save, slow, "of-slow", "slow", 8 * MIB)
        for index in range(4):
            begin = time.monotonic()
            assert stage.read(slow, f"of-other-{index}") and stage.read(other, "big")
            assert time.monotonic() - begin < LOOKUP_WITHIN_S
        assert took.result() < FSYNC_WITHIN_S
    slow.limit(None)
    stage.well(*stage.hosts)
    stage.settle()
