"""Network namespaces by name (ip-netns(8)), and the processes in them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from tools.hosts.system import system

DIRECTORY = Path("/run/netns")


def create(name: str) -> None:
    """Make one, with its loopback up. Raises `ClusterError`."""
    system("ip", "netns", "add", name)
    system("ip", "-n", name, "link", "set", "lo", "up")


def delete(name: str) -> None:
    """Remove one, with every interface in it. Raises `ClusterError`."""
    system("ip", "netns", "delete", name)


def existing(prefix: str) -> list[str]:
    """The namespaces with names that begin so."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(entry.name for entry in DIRECTORY.iterdir() if entry.name.startswith(prefix))
    return []


def file_of(name: str) -> Path:
    """What nsenter(1) takes."""
    return DIRECTORY / name


def pids(names: list[str]) -> list[int]:
    """Every process in these namespaces but this one; none of it can hang."""
    wanted = {key for name in names if (key := _key(file_of(name)))}
    return [
        int(entry.name)
        for entry in Path("/proc").glob("[0-9]*")
        if _key(entry / "ns/net") in wanted and int(entry.name) != os.getpid()
    ]


def _key(file: Path) -> tuple[int, int] | None:
    """What tells one namespace from another; None for a process that has ended."""
    with contextlib.suppress(OSError):
        found = file.stat()
        return found.st_dev, found.st_ino
    return None
