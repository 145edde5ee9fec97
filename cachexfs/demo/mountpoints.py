"""Mount points as the kernel lists them, and how to detach one that does not answer."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class MountPoint:
    """One line of /proc/self/mountinfo (proc(5))."""

    path: Path
    fs_type: str


def mounted() -> list[MountPoint]:
    """Everything mounted, in the order of mounting. Asks no file system, so nothing can hang."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    return [_parse(line) for line in lines]


def is_mountpoint(path: Path) -> bool:
    """Whether something is mounted exactly there, at whatever path it is named by.

    The kernel lists paths without symbolic links. The last name is never looked at: what is mounted
    there may not answer. Those above it only where the path as it is given is not in the list.
    """
    there, path = {mount.path for mount in mounted()}, path.absolute()
    return path in there or Path(os.path.realpath(path.parent)) / path.name in there


def detach(path: Path) -> subprocess.Popen[bytes]:
    """Start to unmount lazily, in use or not.

    By a process of its own, and a bare kill does not end it: it writes back what is dirty, and so
    waits as long as the file system does not answer. Where nothing is mounted it does nothing:
    umount(8) would take the path for the name of a device, and unmount what has that name.
    """
    as_root, as_user = ["umount", "--lazy"], ["fusermount3", "-u", "-z"]
    command = [*(as_root if os.geteuid() == 0 else as_user), str(path)]
    return subprocess.Popen(
        command if is_mountpoint(path) else ["true"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _parse(line: str) -> MountPoint:
    left, _, right = line.partition(" - ")
    return MountPoint(Path(_unescape(left.split(" ")[4])), right.split(" ")[0])


def _unescape(text: str) -> str:
    for code, plain in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, plain)
    return text
