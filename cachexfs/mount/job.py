"""Which job a process belongs to: whose order of publishing its files are part of."""

from __future__ import annotations

import functools
import re
import time
from pathlib import Path

_VARIABLES = (b"SLURM_JOB_ID=", b"LAZER_JOB_ID=")
_CGROUP_JOB = re.compile(r"/job_(\d+)")
"""Slurm's cgroups: slurmstepd.scope/job_42/step_0 (cgroup v2), uid_0/job_42 (v1)."""


_KNOWN_S = 1.0
"""How long a process is taken to be the one it was: far less than it takes to use up all pids."""

_KNOWN_AT_MOST = 4096


def job_of(pid: int) -> str:
    """`"slurm:42"`, `"lazer:7"`, a cgroup's path, or "" when nothing is known of the process."""
    now = time.monotonic()
    known = _known.get(pid)
    if known is not None and now - known[0] < _KNOWN_S:
        return known[1]
    if len(_known) >= _KNOWN_AT_MOST:
        _known.clear()
    job = _ask(pid)
    _known[pid] = (now, job)
    return job


_known: dict[int, tuple[float, str]] = {}


def _ask(pid: int) -> str:
    try:
        started = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
    return _job_of(pid, started)


@functools.lru_cache(maxsize=4096)
def _job_of(pid: int, started: str) -> str:
    # A pid may be used again; with the start time (clock ticks since boot) it names one process.
    return _by_environment(pid) or _by_cgroup(pid)


def _by_environment(pid: int) -> str:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    for prefix in _VARIABLES:
        for variable in variables:
            if variable.startswith(prefix):
                manager = prefix.partition(b"_")[0].lower().decode()
                return f"{manager}:{variable[len(prefix) :].decode(errors='replace')}"
    return ""


def _by_cgroup(pid: int) -> str:
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return ""
    paths = [line.split(":", 2)[2] for line in lines if line.count(":") >= 2]
    for path in paths:
        if match := _CGROUP_JOB.search(path):
            return f"slurm:{match[1]}"
    return max(paths, key=len, default="").strip("/")
