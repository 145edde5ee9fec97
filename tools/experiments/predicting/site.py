"""Where it is measured: hosts with links of a given speed, a shared GlusterFS, a busy neighbour."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from cachexfs.config import Config, PathPolicy, Policy
from cachexfs.control.foresight import Knowledge
from cachexfs.measurements.record import Record
from cachexfs.measurements.store import Store
from tools.experiments.predicting.workload import UNIQUE_BYTES
from tools.hosts.cluster import Cluster
from tools.hosts.errors import ClusterError
from tools.hosts.host import Host
from tools.hosts.spec import address

PIECE_BYTES = 4 << 20
_LOOK_EVERY_S = 0.02
KEPT = 3
"""Files of one writer that stay: as with checkpoints, older ones are deleted."""


class Written(NamedTuple):
    """A write as its writer saw it; wall clock, seconds."""

    begin_s: float
    returned_s: float


def configured(paths: dict[str, PathPolicy], peers: dict[str, str]) -> Callable[[Config], Config]:
    """Each host has its path, and one peer to send its files to."""

    def change(config: Config) -> Config:
        name = config.node.name
        wanted = {name, peers.get(name, name)}
        members = tuple(member for member in config.peers if member.name in wanted)
        return msgspec.structs.replace(
            config, policy=Policy(path=paths.get(name, "both")), peers=members
        )

    return change


@contextlib.contextmanager
def site(
    nodes: int, *, peers: dict[str, str], paths: dict[str, PathPolicy] | None = None
) -> Iterator[Cluster]:
    """A cluster over GlusterFS for the length of a block; nothing of it is left."""
    configure = configured(paths or {}, peers)
    with Cluster(nodes=nodes, pfs="gluster", fsync="replicated", configure=configure) as cluster:
        yield cluster


def limit_hosts(hosts: Iterable[Host], peers_rate: str | None, pfs_rate: str | None) -> None:
    """So fast are their links to the other hosts and to the storage, each way."""
    for host in hosts:
        host.limit(peers_rate, "peers")
        host.limit(pfs_rate, "pfs")


def share_link(hosts: Iterable[Host], partner: Host) -> None:
    """What they send to their partner goes over their link to the storage too, and back by it."""
    for host in hosts:
        to, by = address("peers", partner.number), address("pfs", partner.number)
        host.exec(["ip", "route", "replace", f"{to}/32", "via", by, "dev", "pfs"])


class Writer:
    """Writes files into a host's mount, from outside, and keeps only the last few."""

    def __init__(self, host: Host, name: str) -> None:
        self.host = host
        self._directory = host.mountpoint / f"{name}-{host.name}"
        self._directory.mkdir()
        self._piece = os.urandom(PIECE_BYTES)
        self._names: list[Path] = []
        self._count = 0

    def write(self, size_bytes: int, *, sync: bool) -> Written:
        """Create, write, fsync if wanted, close. Raises OSError."""
        path = self._directory / f"file-{self._count:06d}"
        self._count += 1
        begin_s = time.time()
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        try:
            for offset in range(0, size_bytes, PIECE_BYTES):
                os.write(fd, memoryview(self._piece)[: size_bytes - offset])
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        returned_s = time.time()
        self._names.append(path)
        return Written(begin_s, returned_s)

    def unique(self, size_bytes: int) -> int:
        """About this size, and no other file of this writer has it: it is found by that again."""
        return size_bytes + self._count * UNIQUE_BYTES

    def tidy(self) -> None:
        """Delete all but the last few files, as far as they are durable."""
        for path in self._names[:-KEPT]:
            if state_of(path) == "durable":
                path.unlink()
                self._names.remove(path)

    def wait(self, limit_s: float = 180.0) -> None:
        """Until all that it wrote is durable. Raises `ClusterError`."""
        deadline = time.monotonic() + limit_s
        while any(state_of(path) != "durable" for path in self._names):
            if time.monotonic() > deadline:
                raise ClusterError(f"{self.host.name}: not durable within {limit_s:.0f} s")
            time.sleep(_LOOK_EVERY_S)


def state_of(path: Path) -> str:
    """How safe a file is."""
    return os.getxattr(path, "user.cachexfs.state").decode()


def knowledge(host: Host) -> Knowledge:
    """What the daemon of a host knows now: its fits, and what is on its way."""
    return Knowledge.of(host.client.ask("forecast", path=""))


def records(host: Host) -> list[Record]:
    """What the mount of a host measured. Its daemon writes that down each second."""
    store = Store(Path(knowledge(host).store), readonly=True)
    try:
        return store.records()
    finally:
        store.close()


class Neighbour:
    """Another job: writes through its own host's mount while it is told to be busy."""

    def __init__(self, host: Host, size_bytes: int) -> None:
        self._writer = Writer(host, "neighbour")
        self._size_bytes = size_bytes
        self._busy = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_busy(self) -> bool:
        """Whether it is told to be."""
        return self._busy.is_set()

    def set_busy(self, busy: bool) -> None:
        """Begin, or end after the file that is being written."""
        if busy:
            self._busy.set()
        else:
            self._busy.clear()

    def _run(self) -> None:
        while not self._over.is_set():
            if self._busy.wait(0.2) and not self._over.is_set():
                self._writer.write(self._size_bytes, sync=True)
                self._writer.tidy()

    def __enter__(self) -> Neighbour:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._busy.set()
        self._thread.join(60.0)
