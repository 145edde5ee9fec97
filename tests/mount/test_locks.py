"""Locks of every kind (tensorstore#183, h5py#1101). They hold within this mount, as documented."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mount.conftest import Place

OFD_SETLK, OFD_SETLKW = 37, 38
"""F_OFD_SETLK and F_OFD_SETLKW of linux/fcntl.h."""


def _flock(fd: int) -> None:
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _posix(fd: int) -> None:
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 5)


def _ofd(fd: int) -> None:
    fcntl.fcntl(fd, OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 5, 10, 0))


@pytest.mark.parametrize("lock", [_flock, _posix, _ofd])
def test_case_09_a_lock_holds_and_ends_with_its_process(
    place: Place, lock: Callable[[int], None]
) -> None:
    path = place.mine / "key.__lock"
    path.write_bytes(b"0" * 100)
    with path.open("r+b") as file:
        lock(file.fileno())
        assert _in_a_child(path, lock) == "busy"
    assert _in_a_child(path, lock) == "got"


def _in_a_child(path: Path, lock: Callable[[int], None]) -> str:
    if (child := os.fork()) == 0:
        try:
            lock(os.open(path, os.O_RDWR))
        except (BlockingIOError, PermissionError):
            os._exit(1)
        except BaseException:
            os._exit(2)
        os._exit(0)
    return ["got", "busy", "failed"][os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]
