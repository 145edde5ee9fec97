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
    if not pid:
        return False
    try:
        fd = os.open(f"/proc/{pid}/syscall", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        line = os.read(fd, _LARGEST_BYTES)
    except OSError:
        return False
    finally:
        os.close(fd)
    return means_making(line.decode(), _MACHINE)


def is_made_as(pid: int, name: bytes) -> bool:
    """Whether that file is to be called so; else this may be a directory on the way to it."""
    try:
        call = os.open(f"/proc/{pid}/syscall", os.O_RDONLY | os.O_CLOEXEC)
        try:
            line = os.read(call, _LARGEST_BYTES).decode()
        finally:
            os.close(call)
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return is_last(name, _text_at(memory, _path_in(line, platform.machine())))
        finally:
            os.close(memory)
    except (OSError, OverflowError):
        return False


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
    words = line.split()
    call = int(words[0]) if words and words[0].isdecimal() else -1
    place = _OPENS.get(machine, {}).get(call, 0)
    return int(words[place - 1], 16) if 1 < place < len(words) else 0


def means_making(line: str, machine: str) -> bool:
    """The same of a line of /proc/PID/syscall. With O_EXCL it matters what is there."""
    words = line.split()
    if not words or not words[0].isdecimal():  # "running", or "-1" between calls
        return False
    place = _OPENS.get(machine, {}).get(int(words[0]))
    if place is None or len(words) <= place:
        return False
    flags = int(words[place], 16)
    writes = flags & os.O_ACCMODE != os.O_RDONLY
    return writes and flags & _WANTED == _WANTED and not flags & os.O_EXCL
