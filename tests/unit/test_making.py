"""What a line of /proc/PID/syscall says, and how long what was seen of a directory stands in."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cachexfs.mount import familiar
from cachexfs.mount.familiar import BRIEFLY_S, BUSY_S, FRESH_S, KEPT_S, Familiar
from cachexfs.mount.making import is_last, is_made_as, is_making, means_making

ANEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


def openat(flags: int) -> str:
    """As the kernel prints it: number, six arguments, stack and program counter."""
    return f"257 0xffffffffffffff9c 0x7f0011223344 {flags:#x} 0x1b6 0x0 0x0 0x7ffe00 0x7feb36"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (ANEW, True),
        (os.O_RDWR | os.O_CREAT | os.O_TRUNC, True),
        (ANEW | os.O_EXCL, False),  # whether there is something decides what happens
        (os.O_WRONLY | os.O_CREAT, False),  # it goes on with what is there
        (os.O_WRONLY | os.O_CREAT | os.O_APPEND, False),
        (os.O_RDONLY | os.O_CREAT | os.O_TRUNC, False),
        (os.O_RDONLY, False),
    ],
)
def test_which_opens_make_a_file_whatever_is_there(flags: int, expected: bool) -> None:
    assert means_making(openat(flags), "x86_64") is expected


@pytest.mark.parametrize(
    "line",
    ["", "running\n", "-1 0x7ffe 0x7feb\n", "257", f"4 0x7f00 {ANEW:#x} 0x0 0x0 0x0 0x0 0x1 0x2"],
)
def test_other_lines_say_nothing(line: str) -> None:
    assert not means_making(line, "x86_64")


def test_other_machines_have_other_numbers() -> None:
    assert not means_making(openat(ANEW), "riscv64")
    line = openat(ANEW).replace("257", "56", 1)
    assert means_making(line, "aarch64") and not means_making(line, "x86_64")


def test_who_is_not_there_makes_nothing() -> None:
    assert not is_making(0)
    assert not is_making(os.getpid())  # which reads


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (b"f", True),
        (b"/mnt/run/f", True),
        (b"/mnt/f/g", False),  # a directory on the way
        (b"f/f", False),  # it may be either
        (b"/mnt/run/f/", False),
        (b"/mnt/run/ff", False),
        (b"", False),
    ],
)
def test_which_name_of_a_path_is_the_files(path: bytes, expected: bool) -> None:
    assert is_last(b"f", path) is expected


def test_the_path_is_read_from_who_waits_in_its_open(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    script = "import os, sys; os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)"
    with subprocess.Popen([sys.executable, "-c", script, fifo]) as opener:
        try:
            for _ in range(500):
                if is_making(opener.pid):
                    break
                time.sleep(0.01)
            assert is_made_as(opener.pid, b"fifo")
            assert not is_made_as(opener.pid, os.fsencode(tmp_path.name))
        finally:
            opener.kill()
    assert not is_made_as(0, b"fifo") and not is_made_as(opener.pid, b"fifo")


def test_what_was_seen_stands_in_for_a_while_where_files_are_made() -> None:
    known = Familiar()
    known.saw(7, 0.0)
    assert not known.is_fresh(7, 0.0)  # nothing is made there
    assert known.used(7, 1.0)
    assert not known.used(7, 2.0)
    assert not known.is_fresh(7, 2.0)  # not looked at since
    known.saw(7, 3.0)
    assert known.is_fresh(7, 3.0 + FRESH_S)
    assert not known.is_fresh(7, 3.1 + FRESH_S)
    known.forget(7)
    assert not known.is_fresh(7, 3.0)


def test_directories_are_looked_at_until_nothing_is_made_there_any_more() -> None:
    known = Familiar()
    known.used(7, 0.0)
    known.used(8, 10.0)
    assert known.to_look_at(KEPT_S) == [7, 8]
    assert known.to_look_at(KEPT_S + 5.0) == [8]
    for ino in range(100, 100 + familiar.AT_MOST):
        known.used(ino, 20.0 + ino)
    assert 8 not in known.to_look_at(30.0)  # the one that was not used for longest


def test_a_busy_source_is_not_waited_for_again_at_once() -> None:
    known = Familiar()
    assert known.patience_s(0.0) == BRIEFLY_S
    known.was_busy(0.0)
    assert known.patience_s(BUSY_S / 2) == 0.0
    assert known.patience_s(BUSY_S) == BRIEFLY_S
