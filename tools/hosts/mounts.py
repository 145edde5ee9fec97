"""Mounts below a directory: listed, cut off from who serves them, taken away.

Nothing here asks a file system that is mounted, so none that is silent can hold it up.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cachexfs.demo.mountpoints import detach
from tools.hosts.errors import ClusterError
from tools.hosts.system import system

_CONTROL = Path("/sys/fs/fuse/connections")
_DETACH_S = 10.0
_OCTAL = re.compile(r"\\(\d{3})")


@dataclass(frozen=True)
class Mounted:
    """One line of /proc/self/mountinfo (proc(5)); `minor` is the number of a FUSE connection."""

    path: Path
    fs_type: str
    minor: int
    source: str = ""

    @property
    def is_fuse(self) -> bool:
        """Whether a process serves it."""
        return self.fs_type.startswith("fuse") and self.fs_type != "fusectl"


def below(directory: Path) -> list[Mounted]:
    """What is mounted there and below, in the order of mounting."""
    return [mount for mount in everything() if mount.path.is_relative_to(directory)]


def at(path: Path) -> list[Mounted]:
    """What is mounted exactly there; the last one is seen."""
    return [mount for mount in everything() if mount.path == path]


def everything() -> list[Mounted]:
    """All mounts of this process's mount namespace."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    return [parse(line) for line in lines]


def parse(line: str) -> Mounted:
    """A line of mountinfo."""
    left, _, right = line.partition(" - ")
    fields, (fs_type, source, *_) = left.split(" "), right.split(" ")
    path = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4])
    return Mounted(Path(path), fs_type, int(fields[2].partition(":")[2]), source)


def abort(home: Path, found: list[Mounted]) -> None:
    """Fail all that waits for these FUSE mounts, now and later (fuse.rst, "fuse control")."""
    if not any(mount.is_fuse for mount in found):
        return
    with _connections(home) as connections:
        for minor in {mount.minor for mount in found if mount.is_fuse}:
            with contextlib.suppress(OSError):  # it is gone
                (connections / str(minor) / "abort").write_text("1")


@contextlib.contextmanager
def _connections(home: Path) -> Iterator[Path]:
    """The control file system, mounted below `home` where the system has not mounted it."""
    if any(mount.fs_type == "fusectl" and mount.path == _CONTROL for mount in everything()):
        yield _CONTROL
        return
    own = home / "fusectl"
    own.mkdir(exist_ok=True)
    system("mount", "-t", "fusectl", "none", own)
    try:
        yield own
    finally:
        system("umount", own)


def detach_all(found: list[Mounted]) -> None:
    """Unmount lazily, last first. Raises `ClusterError` for what does not go in time."""
    for mount in reversed(found):
        try:
            detach(mount.path).wait(_DETACH_S)
        except subprocess.TimeoutExpired:
            raise ClusterError(f"{mount.path} cannot be unmounted") from None
