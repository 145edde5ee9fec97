"""A rank on each of four hosts saves as DCP and DeepSpeed do; after each barrier all see all."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator

import pytest

from tests.cluster_of_nodes import eventually
from tools.hosts import preflight
from tools.hosts.cluster import Cluster
from tools.hosts.host import Host

pytestmark = [pytest.mark.root, pytest.mark.fuse]
STEPS, KEPT = 4, 2
SHARD_BYTES = 3 << 20

WRITE = """
import os, sys
path, seed, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
with open(path, "wb") as file:
    file.write((seed.encode() * size)[:size])
"""
LOOK = """
import hashlib, json, os, sys
found = {}
for top, _, names in os.walk(sys.argv[1]):
    for name in names:
        path = os.path.join(top, name)
        with open(path, "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        found[os.path.relpath(path, sys.argv[1])] = [os.stat(path).st_size, digest]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if sentence := preflight.missing("dir"):
        pytest.skip(sentence)
    with Cluster(nodes=4, fsync="captured") as made:
        yield made


def write(host: Host, path: str, seed: str, size: int) -> list[object]:
    """A file of a rank, written by a program on its host; size and digest."""
    arguments = [str(host.mountpoint / path), seed, str(size)]
    host.exec([sys.executable, "-S", "-c", WRITE, *arguments])
    content = (seed.encode() * size)[:size]
    return [size, hashlib.sha256(content).hexdigest()]


def look(host: Host) -> dict[str, list[object]]:
    """Every file that a program on a host sees, with size and digest."""
    done = host.exec([sys.executable, "-S", "-c", LOOK, str(host.mountpoint)])
    found: dict[str, list[object]] = json.loads(done.stdout)
    return found


def test_every_host_sees_every_file_after_the_barrier(cluster: Cluster) -> None:
    expected: dict[str, list[object]] = {}
    first, *_ = cluster.hosts
    for step in range(STEPS):
        name = f"step-{step}"
        first.exec(["mkdir", str(first.mountpoint / f"{name}.tmp")])
        for rank, host in enumerate(cluster.hosts):
            shard = f"__{rank}_0.distcp"
            expected[f"{name}/{shard}"] = write(
                host, f"{name}.tmp/{shard}", f"{step}/{rank}", SHARD_BYTES + rank
            )
        expected[f"{name}/.metadata"] = write(first, f"{name}.tmp/.metadata", name, 9000)
        first.exec(["mv", *(str(first.mountpoint / f"{name}{end}") for end in (".tmp", ""))])
        expected["latest"] = write(first, "latest.tmp", name, len(name))
        first.exec(["mv", *(str(first.mountpoint / f"latest{end}") for end in (".tmp", ""))])
        if step >= KEPT:
            old = f"step-{step - KEPT}"
            first.exec(["rm", "-r", str(first.mountpoint / old)])
            expected = {p: what for p, what in expected.items() if not p.startswith(old)}
        for host in cluster.hosts:
            eventually(
                lambda host=host, seen=expected: look(host) == seen, f"the sight of {host.name}", 3
            )
    for host in cluster.hosts:
        host.cachexfs("wait", host.mountpoint, "--for", "durable", "--timeout", "30")
    assert {p.name for p in first.source.iterdir() if not p.name.startswith(".cachexfs")} == {
        "latest", *(f"step-{step}" for step in range(STEPS - KEPT, STEPS)),
    }  # fmt: skip
