"""The configuration: one TOML file, typed, unknown keys refused; every key has a default.

Durations are text in human units in the file ("30s") and seconds from here on.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path
from typing import Any, Literal

import msgspec

from cachexfs.units import parse_duration
from lazerd.client import SYSTEM_RUN_DIR, run_dirs
from lazerd.errors import ConfigError
from lazerd.policy.names import Information, policy_named

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEFAULT_PATH = Path("/etc/lazer/lazer.toml")
SYSTEM_STATE_DIR = Path("/var/lib/lazer")


class Duration(float):
    """A number of seconds, written as "30s" in the file."""


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class Daemon(_Section, frozen=True):
    """Where its state is and who may do everything: root, its own user, members of `operators`.

    `state_dir` holds the store, `run_dir` the socket and what is known of running jobs; "" is the
    machine's directory for root and the user's own for everybody else.
    """

    state_dir: str = ""
    run_dir: str = ""
    operators: str = ""
    metrics_port: int = 0
    metrics_address: str = "127.0.0.1"


class Policy(_Section, frozen=True):
    """The policy by name, and where the durations of jobs come from.

    "given": what `lazer submit --estimate` said, and history for a job of which nothing was said.
    """

    name: str = "lazer"
    information: Literal["given", "history", "none"] = "given"


class Jobs(_Section, frozen=True):
    """What holds for a job that does not say otherwise. `classes`: priority by class."""

    signal: str = "TERM"
    grace: Duration = Duration(30.0)
    output: str = "lazer-%j.out"
    setup: Duration | None = None
    checkpoint: Duration | None = None
    classes: dict[str, int] = {}


class Local(_Section, frozen=True):
    """This machine. `gpus` None: as many as NVML finds; a number: counted, and not looked at."""

    gpus: int | None = None
    cgroups: bool = True
    gone_timeout: Duration = Duration(60.0)
    sample: Duration = Duration(1.0)


class Slurm(_Section, frozen=True):
    """A Slurm cluster; its other keys are read by the Slurm backend."""

    partitions: tuple[str, ...] = ()
    options: dict[str, Any] = {}


class Checkpoints(_Section, frozen=True):
    """Whether to ask CacheX-FS for safe checkpoints, and how often. `level`: what counts as safe.

    `state_dir` is `node.state_dir` of CacheX-FS, where its daemons' sockets are.
    """

    cachexfs: bool = True
    state_dir: str = "/run/cachexfs"
    poll: Duration = Duration(1.0)
    level: Literal["replicated", "durable"] = "replicated"


class Config(_Section, frozen=True):
    """The whole file."""

    backend: Literal["local", "slurm"] = "local"
    daemon: Daemon = msgspec.field(default_factory=Daemon)
    policy: Policy = msgspec.field(default_factory=Policy)
    jobs: Jobs = msgspec.field(default_factory=Jobs)
    local: Local = msgspec.field(default_factory=Local)
    slurm: Slurm = msgspec.field(default_factory=Slurm)
    checkpoints: Checkpoints = msgspec.field(default_factory=Checkpoints)

    @property
    def state_dir(self) -> Path:
        """Where the store is."""
        if self.daemon.state_dir:
            return Path(self.daemon.state_dir)
        return SYSTEM_STATE_DIR if os.geteuid() == 0 else _own_state_dir()

    @property
    def run_dir(self) -> Path:
        """Where the socket is."""
        if self.daemon.run_dir:
            return Path(self.daemon.run_dir)
        if self.daemon.state_dir:
            return Path(self.daemon.state_dir)
        return SYSTEM_RUN_DIR if os.geteuid() == 0 else next(run_dirs(os.environ))


def _own_state_dir() -> Path:
    home = os.environ.get("HOME") or "~"
    return Path(os.environ.get("XDG_STATE_HOME") or f"{home}/.local/state").expanduser() / "lazer"


def load(path: Path | None) -> Config:
    """Read and check a file; without one, `DEFAULT_PATH` if it exists, else the defaults.

    Raises `ConfigError` with the file and the key.
    """
    chosen = path or (DEFAULT_PATH if DEFAULT_PATH.exists() else None)
    return Config() if chosen is None else parse(_read(chosen), str(chosen))


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
    for key, why in _broken(config):
        raise ConfigError(f"{origin}: {key}: {why}")
    return config


def signal_number(name: str) -> int:
    """`TERM`, `SIGUSR1`, `10` -> its number. Raises `ValueError` with the sentence."""
    if name.isdecimal() and int(name) in signal.valid_signals():
        return int(name)
    upper = name.upper()
    found = getattr(signal, upper if upper.startswith("SIG") else f"SIG{upper}", None)
    if not isinstance(found, signal.Signals):
        raise ValueError(f"{name!r} is not a signal, such as TERM or USR1")
    return found.value


def signal_name(number: int) -> str:
    """15 -> `TERM`."""
    try:
        return signal.Signals(number).name.removeprefix("SIG")
    except ValueError:
        return str(number)


def _broken(config: Config) -> list[tuple[str, str]]:
    """The rules that types cannot say, as far as they are broken."""
    rules: list[tuple[str, bool, str]] = [
        (
            "local.gpus",
            config.local.gpus is not None and config.local.gpus < 1,
            "must be 1 or more",
        ),
        ("local.sample", config.local.sample <= 0, "must be more than 0"),
        ("local.gone_timeout", config.local.gone_timeout <= 0, "must be more than 0"),
        ("jobs.grace", config.jobs.grace < 0, "must not be negative"),
        ("daemon.metrics_port", not 0 <= config.daemon.metrics_port < 1 << 16, "is not a port"),
        (
            "slurm.partitions",
            config.backend == "slurm" and not config.slurm.partitions,
            "names no partition to steer",
        ),
    ]
    broken = [(key, why) for key, is_broken, why in rules if is_broken]
    for key, check in (
        ("jobs.signal", lambda: signal_number(config.jobs.signal)),
        ("policy.name", lambda: _policy(config.policy.name)),
    ):
        try:
            check()
        except ValueError as error:
            broken.append((key, str(error)))
    return broken


def _policy(name: str) -> None:
    policy_named(name, Information.GIVEN)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text") from None


def _human_units(kind: type, value: Any) -> Any:
    if kind is Duration and isinstance(value, int | float | str):
        return Duration(parse_duration(value))
    raise ValueError(f"expected {kind.__name__.lower()}, got {value!r}")


_AT = re.compile(r"(?P<what>.*?)(?: - at `\$(?P<where>[^`]*)`)?", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<field>.*)`")


def _with_key(message: str) -> str:
    """msgspec's `what - at `$.local.gpus`` as `local.gpus: what`."""
    match = _AT.fullmatch(message)
    what, where = (match["what"], (match["where"] or "").lstrip(".")) if match else (message, "")
    if unknown := _UNKNOWN.fullmatch(what):
        return f"{'.'.join(filter(None, (where, unknown['field'])))}: unknown key"
    return f"{where}: {what}" if where else what
