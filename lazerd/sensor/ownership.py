"""Pure: to which job does a process belong? Read from the text of its files in /proc.

The cgroup is what the kernel keeps and no program can talk its way out of, so it comes first. The
environment is inherited, can be set to anything by its owner, and serves where jobs have no cgroup
of their own.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_JOB_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Realm(NamedTuple):
    """Whose jobs are looked for: what marks one in a cgroup's path, and in an environment."""

    name: str
    cgroup: re.Pattern[str]
    variables: tuple[str, ...]


SLURM = Realm(
    "slurm",
    # v1: /slurm/uid_1000/job_42/step_0/task_0, /slurm_NODE/uid_... with several slurmd on one host
    # v2: /system.slice/slurmstepd.scope/job_42/step_0/user/task_0, NODE_slurmstepd.scope likewise
    re.compile(r"/[^/]*slurm[^/]*/(?:[^/]+/)*?job_(\d+)(?:/|$)"),
    ("SLURM_JOB_ID", "SLURM_JOBID"),
)
LAZER = Realm(
    "lazer",
    # .../lazer-0123abcd/job-42-1: the daemon's mark, the job, its attempt (lazerd.backend.cgroup)
    re.compile(r"/lazer-[0-9a-f]+/job-([A-Za-z0-9._-]+)-\d+(?:/|$)"),
    ("LAZER_JOB_ID",),
)
REALMS = {realm.name: realm for realm in (LAZER, SLURM)}


def cgroup_paths(text: str) -> tuple[str, ...]:
    """The paths in /proc/PID/cgroup: one for v2, one for each hierarchy of v1 (cgroups(7))."""
    lines = (line.split(":", 2) for line in text.splitlines())
    return tuple(parts[2] for parts in lines if len(parts) == 3)


def job_in_cgroup(text: str, realm: Realm) -> str | None:
    """The job whose cgroup a process is in, from /proc/PID/cgroup."""
    for path in cgroup_paths(text):
        if match := realm.cgroup.search(path):
            return match.group(1)
    return None


def job_in_environ(data: bytes, realm: Realm) -> str | None:
    """The job that an environment names, from /proc/PID/environ."""
    pairs = dict(entry.partition(b"=")[::2] for entry in data.split(b"\0"))
    for variable in realm.variables:
        value = pairs.get(variable.encode(), b"").decode("ascii", "replace")
        if _JOB_ID.fullmatch(value):
            return value
    return None


def parent_in_status(text: str) -> int:
    """The parent's pid from /proc/PID/status; 0 when there is none."""
    match = re.search(r"^PPid:\s*(\d+)", text, re.MULTILINE)
    return int(match.group(1)) if match else 0
