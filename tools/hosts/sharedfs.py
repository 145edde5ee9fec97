"""The shared file system of a cluster, as hosts see it: what both kinds can do."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Protocol

from cachexfs.demo.mountpoints import detach
from tools.hosts import mounts
from tools.hosts.errors import ClusterError
from tools.hosts.place import Place

ANSWERS_S = 30.0
"""A GlusterFS client connects again within some seconds of its link's mending."""
_ONE_QUESTION_S = 1.0
_LOOK_EVERY_S = 0.1


class SharedFileSystem(Protocol):
    """One file system for all hosts, seen by each at `source_of(place)`."""

    def prepare(self) -> None:
        """Start what serves it, before any host attaches. Raises `ClusterError`."""

    def attach(self, place: Place) -> None:
        """Mount it on a host. Raises `ClusterError`."""

    def block(self, place: Place) -> None:
        """Let it answer nothing on this host any more."""

    def unblock(self, place: Place) -> None:
        """Let it answer again; what was asked meanwhile is carried out."""

    def is_blocked(self, place: Place) -> bool:
        """Whether it is blocked there."""


def source_of(place: Place) -> Path:
    """Where a host mounts the shared file system, as seen from outside."""
    return place.home / "pfs"


def is_attached(place: Place) -> bool:
    """Whether it is mounted there."""
    return bool(mounts.at(source_of(place)))


def detach_from(place: Place) -> None:
    """Take a mount away that nobody serves any more."""
    if is_attached(place):
        detach(source_of(place)).wait(ANSWERS_S)


def must_answer(place: Place, limit_s: float = ANSWERS_S) -> None:
    """Return when it answers. Raises `ClusterError`.

    A child asks (statvfs is never answered from memory) and is left behind where it hangs.
    """
    deadline = time.monotonic() + limit_s
    while not _answers(source_of(place)):
        if time.monotonic() > deadline:
            raise ClusterError(
                f"the shared file system has not answered on {place.name} for {limit_s:.0f} s"
            )
        time.sleep(_LOOK_EVERY_S)


def _answers(path: Path) -> bool:
    quiet = subprocess.DEVNULL
    asking = subprocess.Popen(
        ["stat", "-f", "--", str(path)], stdin=quiet, stdout=quiet, stderr=quiet, cwd="/"
    )
    try:
        return asking.wait(_ONE_QUESTION_S) == 0
    except subprocess.TimeoutExpired:
        asking.kill()
        asking.returncode = 0  # not waited for
        return False
