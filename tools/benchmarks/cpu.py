"""CPU time of a process, its threads and its children, as the kernel counts it."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def used_s(pid: int) -> float:
    """Seconds in user and system mode; of children that have not ended, too."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S  # utime and stime of proc(5)
    return own + sum(used_s(child) for child in _children(pid))


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]
