"""A cluster of hosts on this machine: made, found again by a later command, and removed.

with Cluster(nodes=3, pfs="dir") as cluster:
    cluster.host(1).exec(["sh", "-c", "echo hello > $CACHEXFS_MOUNT/file"])
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from cachexfs.config import Config, to_toml
from cachexfs.errors import UsageError
from tools.hosts import gluster, mounts, netns, place, preflight
from tools.hosts.directory import Directory
from tools.hosts.errors import ClusterError
from tools.hosts.gluster import Gluster
from tools.hosts.host import Host
from tools.hosts.sharedfs import SharedFileSystem
from tools.hosts.spec import Spec, home_of, parse_rate, prefix_of
from tools.hosts.system import system
from tools.hosts.wiring import Wiring

_SPEC = "cluster.json"
Configure = Callable[[Config], Config]


class Cluster:
    """Keywords as for `Spec`; without a `tag` one of its own, so that clusters do not meet.

    `configure` changes the configuration of each host before it is written. As a context manager
    it is up within the block, and nothing of it is left after it. Raises `UsageError`.
    """

    def __init__(self, *, configure: Configure | None = None, **keywords: Any) -> None:
        keywords.setdefault("tag", secrets.token_hex(4))
        self.spec = Spec(**keywords)
        self._configure = configure
        self._wiring = Wiring(self.spec)
        self._pfs: SharedFileSystem = (
            Gluster(self.spec, self._wiring) if self.spec.pfs == "gluster" else Directory(self.spec)
        )
        self.hosts = [
            Host(self.spec, number, self._wiring, self._pfs) for number in self.spec.numbers
        ]

    @classmethod
    def find(cls, base: Path, tag: str) -> Cluster:
        """The cluster that an earlier command has made. Raises `UsageError`."""
        try:
            text = (home_of(base, tag) / _SPEC).read_bytes()
        except OSError:
            raise UsageError(
                f"there is no cluster {tag!r}: tools/cluster up --nodes 3 --pfs dir makes one"
            ) from None
        spec = msgspec.json.decode(text, type=Spec)
        return cls(**msgspec.structs.asdict(spec))

    def host(self, number: int | str) -> Host:
        """`2`, `"2"` or `"host2"`. Raises `UsageError`."""
        return self.hosts[self.spec.number_of(str(number)) - 1]

    def up(self) -> None:
        """Make it; whatever fails, nothing is left. Raises `ClusterError`, `UsageError`."""
        preflight.check(self.spec.pfs)
        if traces(Path(self.spec.base), self.spec.tag):
            raise UsageError(f"there is a cluster {self.spec.tag!r} already: take it down first")
        try:
            self._make()
            self._start()
        except BaseException:
            self.down()
            raise

    def _make(self) -> None:
        home = self.spec.home
        Path(self.spec.base).mkdir(mode=0o755, parents=True, exist_ok=True)
        home.mkdir(mode=0o755)
        (home / _SPEC).write_bytes(msgspec.json.encode(self.spec))
        self.spec.secret.touch(mode=0o600)
        self.spec.secret.write_text(secrets.token_hex(32))
        self.spec.secret.chmod(0o600)
        for directory in (self.spec.hosts, self.spec.shared):
            directory.mkdir()
        # What hosts mount below it is seen by all, whatever the machine does with other mounts.
        system("mount", "--bind", self.spec.hosts, self.spec.hosts)
        system("mount", "--make-shared", self.spec.hosts)
        self._wiring.build()
        for host in self.hosts:
            host.make(self._config_of(host))

    def _config_of(self, host: Host) -> str:
        config = self.spec.config(host.number)
        return to_toml(self._configure(config) if self._configure else config)

    def _start(self) -> None:
        """Peers start while the shared file system does; then the mounts, side by side."""
        with ThreadPoolExecutor(max_workers=len(self.hosts)) as pool:
            peers = [pool.submit(host.start_peer) for host in self.hosts]
            self._pfs.prepare()
            for peer in peers:
                peer.result()
            list(pool.map(Host.start_mount, self.hosts))

    def down(self) -> None:
        """Remove it, however far it got. Raises `ClusterError` for what does not go."""
        remove(Path(self.spec.base), self.spec.tag)

    def partition(self, one: int | str, other: int | str) -> None:
        """Let all be lost that two hosts send to each other. Raises `UsageError`."""
        first, second = self.host(one), self.host(other)
        if first is second:
            raise UsageError(f"{first.name} cannot be parted from itself")
        self._wiring.partition(first.place, second.number)
        self._wiring.partition(second.place, first.number)

    def heal(self, one: int | str, other: int | str) -> None:
        """The end of a partition."""
        first, second = self.host(one), self.host(other)
        self._wiring.heal(first.place, second.number)
        self._wiring.heal(second.place, first.number)

    def block_pfs(self) -> None:
        """The shared file system answers nothing on any host."""
        for host in self.hosts:
            host.block_pfs()

    def unblock_pfs(self) -> None:
        """It answers again on all hosts; returns when it does."""
        for host in self.hosts:
            host.unblock_pfs()

    def limit_storage(self, rate: str | None) -> None:
        """`100mbit` each way for all hosts together, or None; gluster only. Raises `UsageError`."""
        if not isinstance(self._pfs, Gluster):
            raise UsageError("only with --pfs gluster is there a storage host with a link")
        self._wiring.limit(self._pfs.storage, "pfs", parse_rate(rate or "none"))

    def __enter__(self) -> Cluster:
        self.up()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.down()


def traces(base: Path, tag: str) -> list[str]:
    """What there is of a cluster: namespaces, mounts, its directory."""
    home = home_of(base, tag)
    found = netns.existing(prefix_of(tag)) + [str(mount.path) for mount in mounts.below(home)]
    return found + ([str(home)] if home.exists() else [])


def remove(base: Path, tag: str) -> None:
    """Remove whatever there is of a cluster, found by its tag; for one that is half made too.

    Raises `ClusterError` for what does not go, `UsageError` where its files are elsewhere.
    """
    preflight.must_be_root()
    home, names = home_of(base, tag), netns.existing(prefix_of(tag))
    if names and not home.exists():  # which is made first and removed last
        raise UsageError(f"the cluster {tag!r} was made with another directory than {base}")
    outside = gluster.litter(home, netns.pids(names))
    place.end(lambda: netns.pids(names), home)
    mounts.abort(home, mounts.below(home))
    mounts.detach_all(mounts.below(home))
    for name in names:
        netns.delete(name)
    for path in outside:
        path.unlink(missing_ok=True)
    if left := mounts.below(home):  # deleting would go on into it
        raise ClusterError(f"{left[-1].path} is still mounted; {home} stays")
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(home)


def tags(base: Path) -> Iterator[str]:
    """The clusters that are there."""
    for spec in sorted(base.glob(f"*/{_SPEC}")):
        yield spec.parent.name
