"""`cachexfs mount`: check everything that can be wrong, then start the daemon."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from functools import partial
from pathlib import Path

import click

from cachexfs import mountstate
from cachexfs.cli.background import run_daemon, start_in_background, teller
from cachexfs.cli.options import config_option
from cachexfs.config import Config, load, read_secret
from cachexfs.errors import CacheXError, UsageError
from cachexfs.mountstate import Held, Wanted

FIRST_KERNEL = (6, 9)
"""Linux 6.9 brought FUSE_PASSTHROUGH and FUSE_HAS_RESEND."""

# fmt: off
_IGNORED = frozenset((
    "rw", "defaults", "noauto", "auto", "nofail", "user", "nouser", "users", "owner", "group",
    "_netdev", "dev", "suid", "exec", "async", "atime", "diratime", "nodiratime", "relatime",
    "norelatime", "nostrictatime", "silent", "loud",
))
# fmt: on
"""Options of mount(8) and fstab(5) that are not for the file system."""
SOURCE_ANSWERS_S = 10.0
"""A source that is silent for so long is not waited for."""

_PASSED_ON = {"ro", "noexec", "nosuid", "nodev", "noatime", "allow_other", "default_permissions"}


@click.command()
@click.argument("source", type=Path)  # not click.Path, which would ask a source that hangs
@click.argument("mountpoint", type=Path)  # nor a mount that waits for us
@config_option
@click.option("-o", "options", metavar="OPTS", multiple=True, help="Mount options, a,b=c.")
@click.option("-f", "foreground", is_flag=True, help="Stay in the foreground.")
@click.option("--ready-fd", type=int, hidden=True)
@click.option("--device-fd", type=int, hidden=True, help="Of the keeper: /dev/fuse, mounted.")
@click.option("--mount-id", default="", hidden=True, help="Of the keeper: which mount this is.")
def mount(
    source: Path,
    mountpoint: Path,
    config_file: Path | None,
    options: tuple[str, ...],
    foreground: bool,
    ready_fd: int | None,
    device_fd: int | None,
    mount_id: str,
) -> None:
    """Mount SOURCE, a directory of the shared file system, on MOUNTPOINT.

    Returns when the mount answers.
    """
    flags, config_file = parse_options(options, config_file)
    config = load(config_file)
    if device_fd is not None:
        held = Held(device_fd, mount_id)
        serve(config, Wanted(source, mountpoint, flags, held), ready_fd)
        return
    source, mountpoint = check(config, source, mountpoint)
    if not foreground:
        start(config, source, mountpoint, options, config_file)
    elif reason := why_no_link(config):
        serve(config, Wanted(source, mountpoint, flags, plain_reason=reason), ready_fd)
    else:
        arguments = daemon_arguments(source, mountpoint, options, config_file)
        sys.exit(keep(source, mountpoint, flags, arguments, ready_fd))


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
    source = _source(source, may_be_silent=config.has_cluster)
    mountpoint = _directory(mountpoint, "MOUNTPOINT")
    if source == mountpoint or source in mountpoint.parents or mountpoint in source.parents:
        raise UsageError(f"SOURCE {source} and MOUNTPOINT {mountpoint} must not contain each other")
    if os.path.ismount(mountpoint):
        raise UsageError(f"MOUNTPOINT {mountpoint} is in use: something is mounted there")
    if any(mountpoint.iterdir()):
        raise UsageError(f"MOUNTPOINT {mountpoint} is not empty")
    if config.has_cluster:
        read_secret(config)
    return source, mountpoint


def _answers(source: Path) -> bool:
    """Whether the source is not silent.

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
        return False
    return True


def _source(path: Path, *, may_be_silent: bool) -> Path:
    absolute = Path(os.path.abspath(path))  # not resolve(), which asks
    if not _answers(absolute):
        silence = f"SOURCE {absolute} has not answered for {SOURCE_ANSWERS_S:.0f} s"
        if not may_be_silent:
            raise CacheXError(f"{silence}, and there are no members that could stand in for it")
        click.echo(f"cachexfs: {silence}: mounted without it until it does", err=True)
        return absolute
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


def serve(config: Config, wanted: Wanted, ready_fd: int | None) -> None:
    """Be the daemon."""
    from cachexfs import daemon

    run_daemon(partial(daemon.run, config, wanted, teller(ready_fd)))


def keep(
    source: Path,
    mountpoint: Path,
    flags: frozenset[str],
    arguments: list[str],
    ready_fd: int | None,
) -> int:
    """Be the keeper; returns the exit code."""
    from cachexfs.keeper import Keeper

    mount_id = secrets.token_hex(8)

    def command(fd: int, ready: int) -> list[str]:
        named = ["--ready-fd", str(ready)]
        held = ["--device-fd", str(fd), "--mount-id", mount_id]
        return [sys.executable, "-m", "cachexfs", *arguments, "-f", *held, *named]

    return Keeper(str(source), str(mountpoint), flags, command, ready_fd).run()


def why_no_link(config: Config) -> str:
    """Why the kernel link cannot be had; "" when it can."""
    if config.mount.data_path == "portable":
        return "as configured: mount.data_path"
    if os.geteuid() != 0:
        return "passthrough needs root (CAP_SYS_ADMIN)"
    major, minor = (int(number) for number in os.uname().release.split(".")[:2])
    if (major, minor) < FIRST_KERNEL:
        return f"passthrough needs Linux 6.9; this is {os.uname().release}"
    return ""


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
    arguments = daemon_arguments(source, mountpoint, options, config_file)
    start_in_background(arguments, state / "daemon.log")


def daemon_arguments(
    source: Path, mountpoint: Path, options: tuple[str, ...], config_file: Path | None
) -> list[str]:
    """The command line of a daemon, to be started in any directory."""
    arguments = ["mount", str(source), str(mountpoint)]
    arguments += ["-o", ",".join(options)] if options else []
    return arguments + (["-c", str(config_file.resolve())] if config_file else [])
