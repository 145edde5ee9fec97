"""Whether a program is about to make a file, or to write one anew: what a lookup is for.

The kernel asks for the attributes of every directory of a path and looks the last name up before it
sends a create, and does not say why. But the thread that waits for the answer is in its system
call, and proc_pid_syscall(5) shows that. Where it cannot be read nothing is assumed.
"""

from __future__ import annotations

import os
import platform

_OPENS: dict[str, dict[int, int]] = {
    "x86_64": {2: 2, 257: 3},  # open, openat
    "aarch64": {56: 3},
}
"""Machine -> number of a system call -> which word of the line has its flags
(asm/unistd_64.h, asm-generic/unistd.h). openat2 keeps them in memory, and io_uring has no call."""

_WANTED = os.O_CREAT | os.O_TRUNC
_LARGEST_BYTES = 256
_MACHINE = platform.machine()
_PAGE_BYTES = 4096
_LONGEST_PATH_BYTES = 4096


def is_making(pid: int) -> bool:
    """Whether a thread waits in an open(2) that makes a file or empties it, whichever it finds."""
    return bool(pid) and means_making(_call_of(pid), _MACHINE)


def is_made_as(pid: int, name: bytes) -> bool:
    """Whether that file is to be called so; else this may be a directory on the way to it."""
    address = _path_in(_call_of(pid), _MACHINE)
    try:
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return is_last(name, _text_at(memory, address))
        finally:
            os.close(memory)
    except (OSError, OverflowError):
        return False


def _call_of(pid: int) -> str:
    """The line of /proc/PID/syscall; empty where it cannot be read."""
    try:
        fd = os.open(f"/proc/{pid}/syscall", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(fd, _LARGEST_BYTES).decode()
        finally:
            os.close(fd)
    except OSError:
        return ""


def is_last(name: bytes, path: bytes) -> bool:
    """Whether a path ends with a name, and has it nowhere else."""
    *above, last = path.split(b"/")
    return last == name and name not in above


def _text_at(memory: int, address: int) -> bytes:
    """What ends with a zero byte; page by page, as the one behind it may not be there."""
    text = b""
    while b"\0" not in text and len(text) < _LONGEST_PATH_BYTES:
        begin = address + len(text)
        text += os.pread(memory, _PAGE_BYTES - begin % _PAGE_BYTES, begin)
    return text.partition(b"\0")[0]


def _path_in(line: str, machine: str) -> int:
    """Where the path lies of the call in a line of /proc/PID/syscall; 0 when there is none."""
    words, place = _flags_place(line, machine)
    return int(words[place - 1], 16) if place > 1 else 0


def means_making(line: str, machine: str) -> bool:
    """The same of a line of /proc/PID/syscall. With O_EXCL it matters what is there."""
    words, place = _flags_place(line, machine)
    if not place:
        return False
    flags = int(words[place], 16)
    writes = flags & os.O_ACCMODE != os.O_RDONLY
    return writes and flags & _WANTED == _WANTED and not flags & os.O_EXCL


def _flags_place(line: str, machine: str) -> tuple[list[str], int]:
    """The words of the line, and which of them has an open's flags; 0: it is no open."""
    words = line.split()
    if not words or not words[0].isdecimal():  # "running", or "-1" between calls
        return words, 0
    place = _OPENS.get(machine, {}).get(int(words[0]), 0)
    return words, place if place < len(words) else 0
