"""tools/cluster: hosts that are hosts, what can happen to them, and nothing is left of them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cachexfs.config import Config
from cachexfs.errors import TimedOut, UsageError
from tests.cluster_of_nodes import eventually
from tools.hosts import mounts, preflight
from tools.hosts.cluster import Cluster, remove, traces
from tools.hosts.errors import ClusterError
from tools.hosts.host import Host
from tools.hosts.spec import BASE, Spec, parse_rate, rack

pytestmark = [pytest.mark.root, pytest.mark.fuse]

SIZE_BYTES = 8 << 20
CONNECT = "exec 3<> /dev/tcp/{}/7420"  # of bash


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    if sentence := preflight.missing("dir"):
        pytest.skip(sentence)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three hosts over a directory; each test leaves them as it found them."""
    with Cluster(nodes=3, fsync="replicated") as made:
        yield made


def put(host: Host, name: str, size_bytes: int = SIZE_BYTES) -> bytes:
    """Write a file into a host's mount, by a program on that host, and fsync it."""
    content = os.urandom(1 << 16) * (size_bytes >> 16)
    script = (
        "import os, sys; f = open(sys.argv[1], 'wb');"
        "f.write(bytes.fromhex(sys.stdin.read()) * int(sys.argv[2])); f.flush(); os.fsync(f)"
    )
    path, times = host.mountpoint / name, str(size_bytes >> 16)
    host.exec([sys.executable, "-c", script, path, times], text=content[: 1 << 16].hex())
    return content


def get(host: Host, name: str) -> bytes:
    """Read a file from a host's mount, by a program on that host."""
    script = "import sys; print(open(sys.argv[1], 'rb').read().hex(), end='')"
    done = host.exec([sys.executable, "-c", script, host.mountpoint / name])
    return bytes.fromhex(done.stdout)


def state_of(host: Host, name: str) -> str:
    """The state of a file on its owner; "" when it is not known."""
    files = host.ls(name)
    return str(files[0]["state"]) if files else ""


def sent_bytes(host: Host) -> int:
    """What has gone out on its link to the other hosts."""
    line = ["ip", "-n", host.place.namespace, "-s", "-j", "link", "show", "dev", "peers"]
    told: list[dict[str, Any]] = json.loads(
        subprocess.run(line, capture_output=True, check=True).stdout
    )
    return int(told[0]["stats64"]["tx"]["bytes"])


def reaches(host: Host, other: Host) -> bool:
    """Whether a program on one host can connect to the other's peer."""
    command = ["timeout", "1", "bash", "-c", CONNECT.format(other.address)]
    return host.exec(command, check=False).returncode == 0


def answers(host: Host) -> bool:
    """Whether a host's shared file system answers; asked on the host."""
    command = ["timeout", "-k", "1", "1", "stat", "-f", "--", host.source]
    with contextlib.suppress(TimedOut):
        return host.exec(command, timeout_s=3, check=False).returncode == 0
    return False


# --- what there is of a cluster on the machine


@dataclass(frozen=True)
class Machine:
    """What a cluster could leave behind."""

    interfaces: frozenset[str]
    namespaces: frozenset[str]

    @classmethod
    def now(cls) -> Machine:
        """As it is."""
        links = subprocess.run(["ip", "-j", "link"], capture_output=True, check=True).stdout
        netns = Path("/run/netns")
        return cls(
            frozenset(each["ifname"] for each in json.loads(links)),
            frozenset(os.listdir(netns) if netns.exists() else []),
        )


def processes_of(spec: Spec) -> list[str]:
    """The command lines that name something below the cluster's directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = process.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found += [line] if str(spec.home) + "/" in line else []
    return found


def assert_nothing_is_left(spec: Spec, before: Machine) -> None:
    """No namespace, mount, directory, process or interface."""
    assert traces(Path(spec.base), spec.tag) == []
    assert processes_of(spec) == []
    after = Machine.now()
    assert after.interfaces <= before.interfaces
    assert not [name for name in after.namespaces if f"-{spec.tag}-" in name]


# --- hosts


def test_a_file_goes_over_the_wire_to_another_hosts_peer(cluster: Cluster) -> None:
    owner = cluster.host(1)
    before = sent_bytes(owner)
    content = put(owner, "wire.bin")
    told = json.loads(owner.cachexfs("status", owner.mountpoint, "--json").stdout)["mounts"][0]
    assert {peer["name"] for peer in told["peers"]} <= {"host2", "host3"}
    assert state_of(owner, "wire.bin") in ("replicated", "durable")
    assert sent_bytes(owner) - before >= SIZE_BYTES
    stores = [file.read_bytes() for host in cluster.hosts[1:] for file in host.store.rglob("*")
              if file.is_file() and file.stat().st_size == SIZE_BYTES]  # fmt: skip
    assert stores == [content]
    eventually(lambda: state_of(owner, "wire.bin") == "durable", "the flush")
    assert get(cluster.host(2), "wire.bin") == content


def test_a_program_knows_where_it_is(cluster: Cluster) -> None:
    script = "echo $CACHEXFS_HOST; echo x > $CACHEXFS_MOUNT/told; cat $CACHEXFS_CONFIG"
    told = cluster.host(3).exec(["sh", "-c", script]).stdout
    assert told.startswith("host3\n") and 'rack = "rack2"' in told and "10.77.0.3:7420" in told
    eventually(lambda: (cluster.host(1).source / "told").exists(), "the flush")
    script = 'test -e "$CACHEXFS_SOURCE/told"'  # one path on all hosts, and on none outside
    cluster.host(1).exec(["sh", "-c", script])
    assert not (cluster.spec.shared / "told").exists()
    with pytest.raises(ClusterError, match="host1"):
        cluster.host(1).exec(["false"])
    with pytest.raises(TimedOut):
        cluster.host(1).exec(["sleep", "30"], timeout_s=0.2)


RECEIVER = """
import socket, time
listener = socket.create_server(("0.0.0.0", 9000))
print("ready", flush=True)
link, _ = listener.accept()
start, received = time.monotonic(), 0
while part := link.recv(1 << 20):
    received += len(part)
print(received / (time.monotonic() - start), flush=True)
"""
SENDER = """
import socket, sys
link = socket.create_connection((sys.argv[1], 9000), timeout=30)
link.sendall(bytes(8 << 20))
"""


def bytes_a_second(sender: Host, receiver: Host, log: Path) -> float:
    """How fast one host sends 8 MiB to another."""
    log.unlink(missing_ok=True)
    with receiver.popen([sys.executable, "-c", RECEIVER], log):
        eventually(lambda: "ready" in log.read_text(), "the receiver")
        sender.exec([sys.executable, "-c", SENDER, receiver.address])
    return float(log.read_text().split()[-1])


def test_limit_limits_both_ways(cluster: Cluster, tmp_path: Path) -> None:
    host, other, log = cluster.host(1), cluster.host(2), tmp_path / "log"
    limit = 100e6 / 8
    host.limit("100mbit")
    assert host.limits == {"peers": 100_000_000}
    assert 0.5 * limit < bytes_a_second(host, other, log) < 1.1 * limit
    assert 0.5 * limit < bytes_a_second(other, host, log) < 1.1 * limit
    host.limit(None)
    assert host.limits == {}
    assert bytes_a_second(host, other, log) > 3 * limit


def test_partition_parts_two_hosts_and_no_others(cluster: Cluster) -> None:
    one, two, three = cluster.hosts
    cluster.partition(1, 2)
    assert one.lost_to == ["host2"] and two.lost_to == ["host1"]
    assert not reaches(one, two) and not reaches(two, one)
    assert reaches(one, three) and reaches(three, two)
    cluster.heal(1, 2)
    assert reaches(one, two) and reaches(two, one)
    with pytest.raises(UsageError, match="itself"):
        cluster.partition(1, "host1")


def test_a_blocked_file_system_is_silent_on_its_host_only(cluster: Cluster) -> None:
    blocked, other = cluster.host(2), cluster.host(3)
    blocked.block_pfs()
    assert blocked.is_pfs_blocked and not answers(blocked)
    assert not other.is_pfs_blocked and answers(other)
    blocked.unblock_pfs()
    assert answers(blocked)


def test_a_frozen_host_goes_on(cluster: Cluster) -> None:
    host = cluster.host(3)
    host.stop()
    try:
        assert host.is_frozen
        with pytest.raises(TimedOut):
            host.client.ask("report", patience_s=0.5)
    finally:
        host.cont()
    assert not host.is_frozen and host.report()["node"] == "host3"


def test_what_a_lost_host_wrote_is_recovered_on_another(cluster: Cluster) -> None:
    lost, other = cluster.host(1), cluster.host(2)
    cluster.block_pfs()
    content = put(lost, "lost.bin")
    assert state_of(lost, "lost.bin") == "replicated"
    with pytest.raises(UsageError, match="kill it"):
        lost.wipe()
    lost.kill()
    assert lost.place.pids() == []
    lost.wipe()
    assert not lost.store.exists() and not lost.state_dir.exists()
    other.cachexfs("recover", other.mountpoint, "--path", "lost.bin")
    assert get(other, "lost.bin") == content
    with pytest.raises(ClusterError, match="blocked"):
        lost.start()
    cluster.unblock_pfs()
    lost.start()
    eventually(lambda: state_of(other, "lost.bin") == "durable", "the flush")
    assert get(lost, "lost.bin") == content
    # Its mounts were taken away by path; those of the others, which have the same source, stayed.
    assert all(host.report()["node"] == host.name for host in cluster.hosts)


def test_another_cluster_beside_it_is_another(cluster: Cluster) -> None:
    before = Machine.now()
    with Cluster(nodes=1) as beside:
        put(beside.host(1), "mine.bin", 1 << 16)
        assert beside.host(1).address == cluster.host(1).address
        beside.host(1).kill()
    assert_nothing_is_left(beside.spec, before)
    assert all(host.report()["node"] == host.name for host in cluster.hosts)
    assert not (cluster.host(1).source / "mine.bin").exists()


# --- nothing is left


def fail_at_the_second(config: Config) -> Config:
    if config.node.name == "host2":
        raise ClusterError("as wanted")
    return config


def listen_elsewhere(config: Config) -> Config:
    assert config.peer is not None
    peer = msgspec.structs.replace(config.peer, listen="10.99.0.1:7420")
    return msgspec.structs.replace(config, peer=peer) if config.node.name == "host2" else config


@pytest.mark.parametrize("configure", [fail_at_the_second, listen_elsewhere])
def test_a_failure_in_the_middle_leaves_nothing(configure: Any) -> None:
    before = Machine.now()
    broken = Cluster(nodes=2, configure=configure)
    with pytest.raises(ClusterError, match=r"as wanted|host2: "):
        broken.up()
    assert_nothing_is_left(broken.spec, before)


def tool(*arguments: str, tag: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tools.hosts", "--tag", tag, *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("part", ["host2.keeper", "hosts/host2/state"])
def test_down_removes_what_a_killed_up_has_left(number: signal.Signals, part: str) -> None:
    before, spec = Machine.now(), Spec(tag=f"k{os.getpid()}", base=str(BASE), nodes=2)
    up = tool("up", "--nodes", "2", tag=spec.tag)
    try:
        eventually(lambda: (spec.home / part).exists() or up.poll() is not None, "a part of it")
        up.send_signal(number)
        _, said = up.communicate(timeout=60)
        assert up.returncode == (-number if number == signal.SIGKILL else 128 + number), said
        if number == signal.SIGKILL:
            assert traces(BASE, spec.tag)
    finally:
        down = tool("down", tag=spec.tag)
        _, said = down.communicate(timeout=60)
    assert down.returncode == (0 if number == signal.SIGKILL else 2), said
    assert_nothing_is_left(spec, before)


# --- the command line


@pytest.mark.parametrize(
    "arguments",
    [
        ["exec", "9", "true"],
        ["exec", "storage", "true"],
        ["limit", "1", "fast"],
        ["limit", "1", "1gbit", "--link", "pfs"],
        ["partition", "1", "1"],
        ["kill", "0"],
        ["up"],
    ],
)
def test_bad_input_gets_one_sentence(cluster: Cluster, arguments: list[str]) -> None:
    done = tool(*arguments, tag=cluster.spec.tag)
    _, said = done.communicate(timeout=30)
    assert done.returncode == 2
    assert said.startswith("cluster: ") and said.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["down"],
        ["up", "--nodes", "0"],
        ["up", "--nodes", "2", "--replicas", "2"],
        ["up", "--nodes", "1", "--fsync", "replicated"],
    ],
)
def test_so_does_a_cluster_that_is_not_there_or_cannot_be(arguments: list[str]) -> None:
    done = tool(*arguments, tag="nosuch")
    _, said = done.communicate(timeout=30)
    assert done.returncode == 2
    assert said.startswith("cluster: ") and said.count("\n") == 1


def test_a_cluster_is_not_half_removed(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="another directory"):
        remove(tmp_path, cluster.spec.tag)


def test_status_tells_what_is_so(cluster: Cluster) -> None:
    cluster.host(2).block_pfs()
    cluster.host(3).limit("8mbit")
    cluster.partition(1, 3)
    done = subprocess.run(
        [sys.executable, "-m", "tools.hosts", "--tag", cluster.spec.tag, "status", "--json"],
        capture_output=True, check=True, cwd=Path(__file__).parents[2], timeout=60,
    )  # fmt: skip
    cluster.host(2).unblock_pfs()
    cluster.host(3).limit(None)
    cluster.heal(1, 3)
    one, two, three = json.loads(done.stdout)["hosts"]
    assert [each["state"] for each in (one, two, three)] == ["running"] * 3
    assert [each["pfs_blocked"] for each in (one, two, three)] == [False, True, False]
    assert three["limits_bits"] == {"peers": 8_000_000}
    assert (one["cut_off_from"], three["cut_off_from"]) == (["host3"], ["host1"])


# --- what is pure


def test_rates_racks_and_mounts() -> None:
    assert parse_rate("100mbit") == 100_000_000 and parse_rate("1.5Gbit") == 1_500_000_000
    assert parse_rate("none") is None
    assert [rack(number) for number in (1, 2, 3, 4)] == ["rack1", "rack1", "rack2", "rack2"]
    line = r"36 35 0:53 / /mnt/a\040b rw,noatime shared:1 - fuse.cachexfs /x rw"
    assert mounts.parse(line) == mounts.Mounted(Path("/mnt/a b"), "fuse.cachexfs", 53, "/x")


# --- GlusterFS


@pytest.mark.skipif(preflight.missing("gluster") != "", reason=preflight.missing("gluster"))
def test_gluster_is_shared_blocks_and_leaves_nothing() -> None:
    before = Machine.now()
    with Cluster(nodes=2, pfs="gluster") as made:
        one, two = made.hosts
        content = put(one, "shared.bin", 1 << 20)
        eventually(lambda: state_of(one, "shared.bin") == "durable", "the flush")
        assert (two.source / "shared.bin").read_bytes() == content
        assert get(two, "shared.bin") == content
        two.limit("8mbit", "pfs")
        assert two.limits == {"pfs": 8_000_000}
        two.limit(None, "pfs")
        two.block_pfs()
        assert not answers(two) and answers(one)
        two.unblock_pfs()
        assert answers(two)
        one.block_pfs()  # removed while a program on it waits for the shared file system
        waits = one.popen(["stat", "-f", one.source], made.spec.home / "waits.log")
        assert waits.poll() is None
    waits.wait(timeout=5)
    assert_nothing_is_left(made.spec, before)
