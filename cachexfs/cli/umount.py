"""`cachexfs umount`: files first, then the mount."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import click

from cachexfs.cli.options import timeout_option
from cachexfs.client import Client, of_path
from cachexfs.errors import CacheXError, NoSuchMount, NotRunning, TimedOut

_ENDED_S = 30.0
"""How long a daemon may take to end after its file system is unmounted."""


@click.command()
@click.argument("mountpoint", type=str)
@click.option(
    "--for",
    "level",
    type=click.Choice(["durable", "replicated", "none"]),
    default="durable",
    show_default=True,
    help="Wait until every file has reached this level.",
)
@timeout_option
def umount(mountpoint: str, level: str, timeout_s: float | None) -> None:
    """Wait until the files of MOUNTPOINT are safe, then unmount it."""
    client, below = of_path(mountpoint)
    if below:
        raise NoSuchMount(f"{mountpoint} is below the mount point {client.mountpoint}")
    if level != "none":
        drain(client, level, timeout_s)
    unmount(client.mountpoint)
    _wait_for_end(client)


def drain(client: Client, level: str, timeout_s: float | None) -> None:
    """Wait until everything has reached a level; says why not, and that it stays mounted."""
    try:
        client.ask("drain", level=level, timeout_s=timeout_s, patience_s=None)
    except TimedOut as error:
        raise TimedOut(f"{client.mountpoint} stays mounted: {error}") from None


def unmount(mountpoint: str) -> None:
    """Unmount. Raises `CacheXError`, for instance because a program uses it.

    Never what is not a mount point: umount(8) takes that for the name of a device, and ours are
    named after their source, so that a mount of this very directory would go.
    """
    if not _is_mounted(mountpoint):
        raise NoSuchMount(f"nothing is mounted at {mountpoint}")
    command = ["umount"] if os.geteuid() == 0 else ["fusermount3", "-u"]
    done = subprocess.run([*command, mountpoint], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CacheXError(f"cannot unmount {mountpoint}: {done.stderr.strip() or 'busy'}")


def _is_mounted(mountpoint: str) -> bool:
    from cachexfs.demo.mountpoints import is_mountpoint

    # A symbolic link to a mount point is as good; where it leads has just answered.
    return is_mountpoint(Path(mountpoint)) or is_mountpoint(Path(os.path.realpath(mountpoint)))


def _wait_for_end(client: Client) -> None:
    deadline = time.monotonic() + _ENDED_S
    while time.monotonic() < deadline and _is_held(client.socket_path.parent / "lock"):
        time.sleep(0.02)


def _is_held(lock: Path) -> bool:
    import fcntl

    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        raise NotRunning(str(error)) from None
    return False
