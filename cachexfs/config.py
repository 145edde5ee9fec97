"""The configuration: one TOML file, typed, unknown keys refused.

Sizes and durations are text in human units in the file ("64GiB", "2s") and plain numbers, in bytes
and seconds, from here on.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import sys
from pathlib import Path
from typing import Any, Literal

import msgspec

from cachexfs.errors import ConfigError
from cachexfs.units import parse_duration, parse_size

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEFAULT_PATH = Path("/etc/cachexfs/cachexfs.toml")
DEFAULT_SECRET = Path("/etc/cachexfs/secret")
ADOPT_AFTER_S = 60.0
"""A node that restarts, or a network that is mended, is back by then."""
MIN_SECRET_BYTES = 16
"""Shorter secrets can be guessed offline from one recorded handshake (RFC 2104 section 3)."""
OPEN_TO_OTHERS = stat.S_IRWXO | stat.S_IWGRP
"""The group may read: it is how the user that the peer runs as gets at the secret."""

FsyncLevel = Literal["captured", "replicated", "durable"]
PathPolicy = Literal["auto", "replica", "direct", "both"]


class Size(int):
    """A number of bytes, written as "64GiB" in the file."""


class Duration(float):
    """A number of seconds, written as "2s" in the file."""


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class Node(_Section, frozen=True):
    """This host: its name among the members, its rack, and where its state lives."""

    name: str = msgspec.field(default_factory=socket.gethostname)
    rack: str = ""
    state_dir: str = "/run/cachexfs"


class Mount(_Section, frozen=True):
    """What the mount promises; `fsync` None means: replicated with peers, durable without.

    `data_path` "portable" never asks for the kernel link: libfuse serves alone.
    """

    fsync: FsyncLevel | None = None
    data_path: Literal["auto", "portable"] = "auto"
    pfs_timeout: Duration = Duration(2.0)


class Ram(_Section, frozen=True):
    """The RAM tier. `limit` None means half of the memory.

    `prewarm`: get the pages for the next save between two saves. It does nothing on huge pages,
    where there is nothing to gain.
    """

    limit: Size | None = None
    huge_pages: bool = True
    prewarm: bool = True


class Spill(_Section, frozen=True):
    """A local NVMe directory for captured files that the RAM tier has no room for."""

    path: str


class Peer(_Section, frozen=True):
    """The replica store of this node.

    `adopt_after`: a node that has not been heard of for so long is taken for dead, and what it has
    not brought to the shared file system is brought there from its replicas. The same on all nodes.
    """

    store: str
    listen: str = "0.0.0.0:7420"
    limit: Size | None = None
    adopt_after: Duration = Duration(ADOPT_AFTER_S)


class Member(_Section, frozen=True):
    """One node of the cluster and where its replica store listens."""

    name: str
    address: str
    rack: str = ""


class Members(_Section, frozen=True):
    """Where the members are named: under [[peers]], by Slurm (SLURM_JOB_NODELIST), or in a file.

    A file has a line `NAME HOST:PORT [RACK]` for each and may change at any time. `port` is where
    the nodes that Slurm names listen; `racks` says which hosts each rack has (`gpu[001-016]`), for
    members that are named without one. `visible`: what is closed here can be read on every member
    at once, which costs each close a message to two of them.
    """

    source: Literal["config", "slurm", "file"] = "config"
    file: str | None = None
    port: int = 7420
    visible: bool = True
    racks: dict[str, str] = {}


class Replication(_Section, frozen=True):
    """How many copies on other nodes, and whether to compress on the way.

    `chase`: send what a program leaves behind in a large file before it closes the file.
    """

    replicas: int = 1
    chase: bool = False
    compression: Literal["off", "auto"] | int = "off"


class Policy(_Section, frozen=True):
    """Which way files take to safety; see docs/durability.md.

    `auto` takes the path that gets a file safe from the loss of this node soonest, at this
    `quantile` of the forecast.
    """

    path: PathPolicy = "both"
    quantile: float = 0.95


class Failures(_Section, frozen=True):
    """How often nodes fail, for the forecast of lost work and the interval between checkpoints.

    `mtbf`: mean time between failures of one node; None: from what was seen here, and a prior.
    `nodes`: how many nodes a job runs on; None: as many as there are members. `restart`: from a
    failure until the job computes again.
    """

    mtbf: Duration | None = None
    nodes: int | None = None
    restart: Duration = Duration(300.0)


class Security(_Section, frozen=True):
    """The shared secret, and mutual TLS where all three of its files are named."""

    secret_file: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_ca: str | None = None


class Config(_Section, frozen=True):
    """The whole file."""

    node: Node = msgspec.field(default_factory=Node)
    mount: Mount = msgspec.field(default_factory=Mount)
    ram: Ram = msgspec.field(default_factory=Ram)
    spill: Spill | None = None
    peer: Peer | None = None
    members: Members = msgspec.field(default_factory=Members)
    peers: tuple[Member, ...] = ()
    replication: Replication = msgspec.field(default_factory=Replication)
    policy: Policy = msgspec.field(default_factory=Policy)
    failures: Failures = msgspec.field(default_factory=Failures)
    security: Security = msgspec.field(default_factory=Security)

    @property
    def partners(self) -> tuple[Member, ...]:
        """The members that are not this node: where its replicas can go."""
        return tuple(member for member in self.peers if member.name != self.node.name)

    @property
    def has_cluster(self) -> bool:
        """Whether other nodes are members, or may become members while this one runs."""
        return bool(self.partners) or self.members.source != "config"

    @property
    def fsync_level(self) -> FsyncLevel:
        """The level at which fsync returns."""
        return self.mount.fsync or ("replicated" if self.has_cluster else "durable")

    @property
    def ram_limit_bytes(self) -> int:
        """The budget of the RAM tier in bytes."""
        return int(self.ram.limit or memory_bytes() // 2)


def memory_bytes() -> int:
    """The memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def load(path: Path | None) -> Config:
    """Read and check a file; without one, `DEFAULT_PATH` if it exists, else the defaults.

    Raises `ConfigError` with the file and the key.
    """
    chosen = path or (DEFAULT_PATH if DEFAULT_PATH.exists() else None)
    return _check(Config(), "the defaults") if chosen is None else parse(_read(chosen), str(chosen))


def parse(text: str, origin: str) -> Config:
    """The configuration in `text`; `origin` names it in errors."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{origin}: not valid TOML: {error}") from None
    try:
        config = msgspec.convert(table, Config, dec_hook=_human_units)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{origin}: {_with_key(str(error))}") from None
    return _check(config, origin)


def read_secret(config: Config) -> bytes:
    """The shared secret. Raises `ConfigError` when it is missing, unreadable or short."""
    path = Path(config.security.secret_file or DEFAULT_SECRET)
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(
            f"security.secret_file: cannot read {path}: {error.strerror}; "
            f"make one with: head -c 32 /dev/urandom | base64 > {path}; chmod 600 {path}"
        ) from None
    if len(secret) < MIN_SECRET_BYTES:
        raise ConfigError(f"security.secret_file: {path} is shorter than {MIN_SECRET_BYTES} bytes")
    must_be_private(path, "security.secret_file")
    return secret


def must_be_private(path: Path, key: str) -> None:
    """Raises `ConfigError` naming `key` where more than the owner and the group can read a file."""
    if path.stat().st_mode & OPEN_TO_OTHERS:
        raise ConfigError(f"{key}: others can read or change {path}: chmod 600 {path}")


def split_address(address: str, key: str) -> tuple[str, int]:
    """`"10.0.0.18:7420"` or `"[::1]:7420"` -> (host, port). Raises `ConfigError` naming `key`."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 <= int(port) < 1 << 16:
        raise ConfigError(f"{key}: {address!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def to_toml(config: Config) -> str:
    """The configuration as a file that `load` reads back, every default written out."""
    table: dict[str, Any] = msgspec.to_builtins(config, enc_hook=_plain)
    peers = table.pop("peers")
    sections = [(f"[{name}]", values) for name, values in table.items() if values is not None]
    sections += [("[[peers]]", values) for values in peers]
    return "\n".join(f"{head}\n{_toml_lines(values)}" for head, values in sections)


def _plain(value: object) -> float:
    return int(value) if isinstance(value, Size) else float(str(value))


def _toml_lines(values: dict[str, Any]) -> str:
    return "".join(
        f"{key} = {_toml_value(value)}\n" for key, value in values.items() if value is not None
    )


def _toml_value(value: Any) -> str:
    # TOML's basic strings, booleans and numbers are written as JSON writes them.
    if isinstance(value, dict):
        return (
            "{ "
            + ", ".join(f"{_toml_value(k)} = {_toml_value(v)}" for k, v in value.items())
            + " }"
        )
    return msgspec.json.encode(value).decode()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text") from None


def _human_units(kind: type, value: Any) -> Any:
    if kind is Size and isinstance(value, int | str):
        return Size(parse_size(value))
    if kind is Duration and isinstance(value, int | float | str):
        return Duration(parse_duration(value))
    raise ValueError(f"expected {kind.__name__.lower()}, got {value!r}")


_AT = re.compile(r"(?P<what>.*?)(?: - at `\$(?P<where>[^`]*)`)?", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<field>.*)`")


def _with_key(message: str) -> str:
    """msgspec's `what - at `$.ram.limit`` as `ram.limit: what`."""
    match = _AT.fullmatch(message)
    what, where = (match["what"], (match["where"] or "").lstrip(".")) if match else (message, "")
    if unknown := _UNKNOWN.fullmatch(what):
        return f"{'.'.join(filter(None, (where, unknown['field'])))}: unknown key"
    return f"{where}: {what}" if where else what


def _check(config: Config, origin: str) -> Config:
    """The rules that types cannot say. Raises `ConfigError` with the first that is broken."""
    for key, broken, why in _rules(config):
        if broken:
            raise ConfigError(f"{origin}: {key}: {why}")
    for index, member in enumerate(config.peers):
        split_address(member.address, f"{origin}: peers[{index}].address")
    if config.peer is not None:
        split_address(config.peer.listen, f"{origin}: peer.listen")
    return config


def _is_positive(number: float | None) -> bool:
    return number is None or number > 0


def _rules(config: Config) -> list[tuple[str, bool, str]]:
    names = [member.name for member in config.peers]
    level = config.replication.compression
    tls = [config.security.tls_cert, config.security.tls_key, config.security.tls_ca]
    wants = config.replication.replicas
    elsewhere = config.members.source != "config"
    return [
        ("node.name", not config.node.name, "must not be empty"),
        (
            "ram.limit",
            (config.ram.limit or 0) > memory_bytes(),
            f"is larger than the memory of this machine ({memory_bytes()} bytes)",
        ),
        ("ram.limit", config.ram.limit is not None and config.ram.limit < 1 << 20, "is under 1MiB"),
        ("mount.pfs_timeout", config.mount.pfs_timeout <= 0, "must be more than 0"),
        ("peers", len(set(names)) < len(names), "two members have the same name"),
        ("replication.replicas", not 1 <= wants <= 3, "must be 1, 2 or 3"),
        (
            "replication.replicas",
            bool(config.partners) and wants > len(config.partners),
            f"{wants} copies need as many other members; peers names {len(config.partners)}",
        ),
        (
            "replication.compression",
            isinstance(level, int) and not 1 <= level <= 22,
            'must be "off", "auto" or a level from 1 to 22',
        ),
        (
            "mount.fsync",
            config.mount.fsync == "replicated" and not config.partners and not elsewhere,
            '"replicated" needs at least one other member under [[peers]]',
        ),
        (
            "members.file",
            (config.members.source == "file") != (config.members.file is not None),
            'goes together with members.source = "file"',
        ),
        ("members.port", not 0 < config.members.port < 1 << 16, "is no port"),
        ("members", elsewhere and bool(config.peers), "are named twice: here and under [[peers]]"),
        ("policy.quantile", not 0.5 <= config.policy.quantile <= 0.999, "must be 0.5 to 0.999"),
        (
            "policy.path",
            config.policy.path == "replica" and not config.partners and not elsewhere,
            '"replica" needs at least one other member under [[peers]]',
        ),
        ("failures.mtbf", not _is_positive(config.failures.mtbf), "must be more than 0"),
        ("failures.nodes", not _is_positive(config.failures.nodes), "must be 1 or more"),
        ("failures.restart", config.failures.restart < 0, "must not be negative"),
        ("security", any(tls) and not all(tls), "tls_cert, tls_key and tls_ca go together"),
    ]
