"""What is to be mounted, and where it keeps its state: a directory for each mount point."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from cachexfs.errors import CacheXError

ENDS_WITHIN_S = 2.0
"""A daemon that was just unmounted puts its things away; who mounts there again need not know."""
_LOOK_EVERY_S = 0.02

HANDED_OVER = 64
"""Exit code of a daemon that makes way for another one."""


@dataclass(frozen=True)
class Held:
    """A descriptor of /dev/fuse that is mounted, and the mount's id: both outlive the daemon."""

    device: int
    mount_id: str


@dataclass(frozen=True)
class Wanted:
    """What to mount, and where. Without `held`, `plain_reason` says why libfuse serves alone."""

    source: Path
    mountpoint: Path
    options: frozenset[str] = frozenset()
    held: Held | None = None
    plain_reason: str = ""


def directory_of(state_dir: Path, mountpoint: str) -> Path:
    """The state directory of a mount point: readable, and different for different paths."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", mountpoint.strip("/")) or "root"
    return state_dir / f"{readable[:64]}-{hashlib.sha256(os.fsencode(mountpoint)).hexdigest()[:8]}"


def prepare(directory: Path) -> None:
    """Make it. Others may look up the control socket in it, and no more."""
    try:
        directory.mkdir(mode=0o711, parents=True, exist_ok=True)
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise CacheXError(f"node.state_dir: cannot make {directory}: {error.strerror}") from None
    try:
        if (uid := os.fstat(fd).st_uid) != os.geteuid():
            raise CacheXError(f"node.state_dir: {directory} belongs to the user {uid}")
        os.fchmod(fd, 0o711)
    finally:
        os.close(fd)


def lock(directory: Path) -> int:
    """Hold the directory for this process; returns the descriptor that holds it. Blocking.

    Raises `CacheXError` when another daemon has it, and does not end within `ENDS_WITHIN_S`.
    """
    fd = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + ENDS_WITHIN_S
    while not _is_locked(fd):
        if time.monotonic() > deadline:
            os.close(fd)
            raise CacheXError(f"another daemon serves this mount point ({directory})")
        time.sleep(_LOOK_EVERY_S)
    os.ftruncate(fd, 0)
    os.write(fd, str(os.getpid()).encode())  # for a person who looks for it
    return fd


def _is_locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
