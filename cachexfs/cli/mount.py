"""`cachexfs mount`: check everything that can be wrong, then start the daemon."""

from __future__ import annotations

import os
import subprocess
from functools import partial
from pathlib import Path

import click

from cachexfs import mountstate
from cachexfs.cli.background import run_daemon, start_in_background, teller
from cachexfs.cli.options import config_option
from cachexfs.config import Config, load, read_secret
from cachexfs.errors import CacheXError, UsageError

# fmt: off
_IGNORED = frozenset((
    "rw", "defaults", "noauto", "auto", "nofail", "user", "nouser", "users", "owner", "group",
    "_netdev", "dev", "suid", "exec", "async", "atime", "diratime", "nodiratime", "relatime",
    "norelatime", "nostrictatime", "silent", "loud",
))
# fmt: on
"""Options of mount(8) and fstab(5) that are not for the file system."""
SOURCE_ANSWERS_S = 10.0
"""A source that is silent for so long cannot be mounted now, and the command says so."""

_PASSED_ON = {"ro", "noexec", "nosuid", "nodev", "noatime", "allow_other", "default_permissions"}


@click.command()
@click.argument("source", type=Path)  # not click.Path, which would ask a source that hangs
@click.argument("mountpoint", type=click.Path(path_type=Path))
@config_option
@click.option("-o", "options", metavar="OPTS", multiple=True, help="Mount options, a,b=c.")
@click.option("-f", "foreground", is_flag=True, help="Stay in the foreground.")
@click.option("--ready-fd", type=int, hidden=True)
def mount(
    source: Path,
    mountpoint: Path,
    config_file: Path | None,
    options: tuple[str, ...],
    foreground: bool,
    ready_fd: int | None,
) -> None:
    """Mount SOURCE, a directory of the shared file system, on MOUNTPOINT.

    Returns when the mount answers.
    """
    flags, config_file = parse_options(options, config_file)
    config = load(config_file)
    source, mountpoint = check(config, source, mountpoint)
    if foreground:
        serve(config, source, mountpoint, flags, ready_fd)
    else:
        start(config, source, mountpoint, options, config_file)


def parse_options(
    options: tuple[str, ...], config_file: Path | None
) -> tuple[frozenset[str], Path | None]:
    """The options for FUSE, and the configuration file if one is named. Raises `UsageError`."""
    flags = set()
    for option in filter(None, ",".join(options).split(",")):
        key, _, value = option.partition("=")
        if key == "config" and value:
            config_file = Path(value)
        elif option in _PASSED_ON:
            flags.add(option)
        elif option not in _IGNORED and not key.startswith(("x-", "comment")):
            raise UsageError(f"-o {option}: no such option")
    return frozenset(flags | {"default_permissions"}), config_file


def check(config: Config, source: Path, mountpoint: Path) -> tuple[Path, Path]:
    """The two directories as absolute paths. Raises `UsageError` for what cannot be mounted."""
    if not Path("/dev/fuse").exists():
        raise CacheXError("there is no /dev/fuse: load the fuse module, or pass the device in")
    source = _source(source)
    mountpoint = _directory(mountpoint, "MOUNTPOINT")
    if source == mountpoint or source in mountpoint.parents or mountpoint in source.parents:
        raise UsageError(f"SOURCE {source} and MOUNTPOINT {mountpoint} must not contain each other")
    if os.path.ismount(mountpoint):
        raise UsageError(f"MOUNTPOINT {mountpoint} is in use: something is mounted there")
    if any(mountpoint.iterdir()):
        raise UsageError(f"MOUNTPOINT {mountpoint} is not empty")
    if config.partners:
        read_secret(config)
    return source, mountpoint


def _must_answer(source: Path) -> None:
    """Raise `CacheXError` when the source is silent.

    A child process asks, and is left behind if need be: a call to a dead file system may not even
    be killed, and holds up the end of its process. statvfs is never answered from memory.
    """
    quiet = subprocess.DEVNULL
    command = ["stat", "-f", "--", str(source)]
    asking = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, cwd="/")
    try:
        asking.wait(SOURCE_ANSWERS_S)
    except subprocess.TimeoutExpired:
        asking.kill()
        asking.returncode = 0  # not waited for
        raise CacheXError(
            f"SOURCE {source} has not answered for {SOURCE_ANSWERS_S:.0f} s"
        ) from None


def _source(path: Path) -> Path:
    _must_answer(Path(os.path.abspath(path)))  # not resolve(), which asks
    source = _directory(path, "SOURCE")
    if not os.access(source, os.R_OK | os.W_OK | os.X_OK):
        raise UsageError(f"SOURCE {source} cannot be read and written by this user")
    return source


def _directory(path: Path, what: str) -> Path:
    try:
        resolved = path.resolve(strict=True)
        if not resolved.is_dir():
            raise UsageError(f"{what} {path} is not a directory")
    except OSError as error:
        raise UsageError(f"{what} {path}: {error.strerror}") from None
    return resolved


def serve(
    config: Config, source: Path, mountpoint: Path, flags: frozenset[str], ready_fd: int | None
) -> None:
    """Be the daemon."""
    from cachexfs import daemon

    wanted = daemon.Wanted(source, mountpoint, flags)
    run_daemon(partial(daemon.run, config, wanted, teller(ready_fd)))


def start(
    config: Config,
    source: Path,
    mountpoint: Path,
    options: tuple[str, ...],
    config_file: Path | None,
) -> None:
    """Start the daemon, and return when it answers. Raises `CacheXError`."""
    state = mountstate.directory_of(Path(config.node.state_dir), str(mountpoint))
    mountstate.prepare(state)
    arguments = ["mount", str(source), str(mountpoint)]
    arguments += ["-o", ",".join(options)] if options else []
    arguments += ["-c", str(config_file.resolve())] if config_file else []
    start_in_background(arguments, state / "daemon.log")
