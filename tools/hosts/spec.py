"""What a cluster is: names, addresses, racks, and the configuration of each host. Pure.

Everything that is made carries the tag in its name or lies below `home`, so that what is left of a
cluster can be found without knowing how far its making got.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import msgspec

from cachexfs.config import (
    Config,
    FsyncLevel,
    Member,
    Mount,
    Node,
    Peer,
    Ram,
    Replication,
    Security,
    Size,
)
from cachexfs.errors import UsageError

BASE = Path("/var/lib/cachexfs-cluster")
"""Of root alone, and on a disk: GlusterFS keeps trusted xattrs there, which tmpfs has not."""
MAX_NODES = 64
HOSTS_A_RACK = 2
PEER_PORT = 7420
STORAGE = "storage"
SWITCH = "switch"

Link = Literal["peers", "pfs"]
NETWORKS: dict[Link, str] = {"peers": "10.77.0", "pfs": "10.77.1"}
"""Link -> the network (/24) behind it. Each cluster has both to itself, in its own namespaces."""
STORAGE_NUMBER = 254
PfsKind = Literal["dir", "gluster"]

_TAG = re.compile(r"[a-z0-9_]{1,16}")  # no "-": one tag must never be the beginning of another
_RATE = re.compile(r"(\d+(?:\.\d+)?)([kmg]?)bit")
_POWERS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
MIN_RATE_BITS = 8_000


class Spec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One cluster; `fsync` None leaves the default of the mount. Raises `UsageError`."""

    nodes: int = 3
    pfs: PfsKind = "dir"
    replicas: int = 1
    fsync: FsyncLevel | None = None
    ram_bytes: int = 1 << 30
    tag: str = "main"
    base: str = str(BASE)

    def __post_init__(self) -> None:
        check_tag(self.tag)
        for broken, why in (
            (not 1 <= self.nodes <= MAX_NODES, f"--nodes must be 1 to {MAX_NODES}"),
            (self.replicas < 1, "--replicas must be 1 or more"),
            (
                self.replicas > max(1, self.nodes - 1),
                f"{self.replicas} replicas need {self.replicas + 1} hosts; --nodes is {self.nodes}",
            ),
            (
                self.fsync == "replicated" and self.nodes == 1,
                "--fsync replicated needs a second host",
            ),
        ):
            if broken:
                raise UsageError(why)

    @property
    def home(self) -> Path:
        """Everything of the cluster that is a file."""
        return home_of(Path(self.base), self.tag)

    @property
    def hosts(self) -> Path:
        """A directory for each host; what hosts mount in it is seen by all, and from outside."""
        return self.home / "hosts"

    @property
    def shared(self) -> Path:
        """Where every host sees the shared file system: one path, as on a real cluster.

        The path is the name under which peers keep replicas, so it must be the same on all hosts.
        """
        return self.home / "shared"

    @property
    def secret(self) -> Path:
        """The shared secret."""
        return self.home / "secret"

    def home_of_host(self, name: str) -> Path:
        """The directory of a host or of the storage host."""
        return self.hosts / name

    def namespace(self, name: str) -> str:
        """The network namespace of a host, of the storage host, or of the switch."""
        return prefix_of(self.tag) + name

    @property
    def numbers(self) -> range:
        """The numbers of the hosts."""
        return range(1, self.nodes + 1)

    def number_of(self, text: str) -> int:
        """`2` or `host2` -> 2. Raises `UsageError`."""
        digits = text.removeprefix("host")
        if digits.isdecimal() and int(digits) in self.numbers:
            return int(digits)
        raise UsageError(f"there is no host {text!r}: this cluster has host1 to host{self.nodes}")

    def config(self, number: int) -> Config:
        """The configuration of one host."""
        home, member = self.home_of_host(host_name(number)), self._member(number)
        alone = self.nodes == 1
        return Config(
            node=Node(name=member.name, rack=member.rack, state_dir=str(home / "state")),
            mount=Mount(fsync=self.fsync),
            ram=Ram(limit=Size(self.ram_bytes)),
            peer=Peer(store=str(home / "nvme"), listen=member.address),
            peers=() if alone else tuple(self._member(each) for each in self.numbers),
            replication=Replication(replicas=self.replicas),
            security=Security(secret_file=str(self.secret)),
        )

    def _member(self, number: int) -> Member:
        return Member(
            name=host_name(number),
            address=f"{address('peers', number)}:{PEER_PORT}",
            rack=rack(number),
        )


def host_name(number: int) -> str:
    """The name of a host, in the configuration and on the command line."""
    return f"host{number}"


def rack(number: int) -> str:
    """The rack of a host: two hosts in each, so that four hosts make two racks."""
    return f"rack{(number - 1) // HOSTS_A_RACK + 1}"


def address(link: Link, number: int) -> str:
    """The IPv4 address of a host on one of its links."""
    return f"{NETWORKS[link]}.{number}"


def prefix_of(tag: str) -> str:
    """What the names of all network namespaces of a cluster begin with."""
    return f"cachexfs-{tag}-"


def home_of(base: Path, tag: str) -> Path:
    """The directory of a cluster."""
    return base / tag


def check_tag(tag: str) -> str:
    """The tag itself. Raises `UsageError`."""
    if not _TAG.fullmatch(tag):
        raise UsageError(f"--tag {tag!r}: up to 16 of a-z, 0-9 and _")
    return tag


def parse_rate(text: str) -> int | None:
    """`100mbit` -> bits a second, as tc(8) counts them; `none` -> None. Raises `UsageError`."""
    if text == "none":
        return None
    match = _RATE.fullmatch(text.lower())
    bits = int(float(match[1]) * _POWERS[match[2]]) if match else 0
    if bits < MIN_RATE_BITS:
        raise UsageError(f"{text!r} is not a rate, such as 100mbit (8kbit at least) or none")
    return bits
