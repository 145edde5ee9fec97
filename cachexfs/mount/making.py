"""Whether a program is about to make a file, or to write one anew: what a lookup is for.

The kernel asks for the attributes of every directory of a path and looks the last name up before it
sends a create, and does not say why. But the thread that waits for the answer is in its system
call, and proc_pid_syscall(5) shows that. Where it cannot be read nothing is assumed.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

_OPENS: dict[str, dict[int, int]] = {
    "x86_64": {2: 2, 257: 3},  # open, openat
    "aarch64": {56: 3},
}
"""Machine -> number of a system call -> which word of the line has its flags
(asm/unistd_64.h, asm-generic/unistd.h). openat2 keeps them in memory, and io_uring has no call."""

_WANTED = os.O_CREAT | os.O_TRUNC
_LARGEST_BYTES = 256


def is_making(pid: int) -> bool:
    """Whether a thread waits in an open(2) that makes a file or empties it, whichever it finds."""
    try:
        text = Path(f"/proc/{pid}/syscall").read_text() if pid else ""
    except OSError:
        return False
    return means_making(text[:_LARGEST_BYTES], platform.machine())


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
