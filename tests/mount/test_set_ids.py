"""Set-ID bits go when a file is written, as on any file system, and stay otherwise."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.mount.conftest import Place

BITS = stat.S_ISUID | stat.S_ISGID

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="other users can only be played by root")


def bits(path: Path) -> int:
    return path.stat().st_mode & BITS


def as_nobody(path: Path, work: str) -> None:
    """A child process of another user does `work` to `path`."""
    child = os.fork()
    if child == 0:
        try:
            os.chdir(path.parent)  # what is above is closed to others
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            exec(work, {"os": os, "path": path.name})
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def made(place: Place) -> Path:
    path = place.mine / "tool"
    path.write_bytes(b"tool" * 1000)
    path.chmod(0o6777)
    return path


def test_a_program_is_installed_with_its_bits(place: Place) -> None:
    path = place.mine / "tool"
    with path.open("wb") as file:
        file.write(b"tool")
        file.flush()
        os.fchmod(file.fileno(), 0o6755)
        os.utime(file.fileno(), (1, 1))
    assert bits(path) == BITS
    place.publish()
    assert (place.source / "tool").stat().st_mode & BITS == BITS


WRITES = {
    "write": "fd = os.open(path, os.O_WRONLY); os.write(fd, b'evil'); os.close(fd)",
    "append": "fd = os.open(path, os.O_WRONLY | os.O_APPEND); os.write(fd, b'x'); os.close(fd)",
    "truncate": "os.truncate(path, 10)",
    "empty": "os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))",
    "write, touch": (
        "fd = os.open(path, os.O_WRONLY); os.write(fd, b'evil'); os.utime(fd); os.close(fd)"
    ),
}


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("work", WRITES.values(), ids=WRITES)
def test_another_user_who_writes_takes_them_away(place: Place, work: str, published: bool) -> None:
    path = made(place)
    if published:
        place.publish()
    as_nobody(path, work)
    assert bits(path) == 0
    place.publish()
    assert (place.source / "tool").stat().st_mode & BITS == 0


@pytest.mark.parametrize("published", [False, True])
def test_who_only_opens_it_does_not(place: Place, published: bool) -> None:
    path = made(place)
    if published:
        place.publish()
    as_nobody(path, "os.close(os.open(path, os.O_WRONLY))")
    as_nobody(path, "fd = os.open(path, os.O_RDONLY); os.read(fd, 9); os.close(fd)")
    assert bits(path) == BITS
