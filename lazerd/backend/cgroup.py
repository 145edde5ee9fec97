"""A cgroup (version 2) for each job, where we may make one: nobody leaves it by forking.

Where the hierarchy is not ours to change, jobs go without; `supervisor.py` then is what keeps a
job together. cgroup.kill needs Linux 5.14.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
_OWN = Path("/proc/self/cgroup")


class Cgroups:
    """The cgroups of one daemon's jobs, below its own. `root` None: there are none."""

    def __init__(self, root: Path | None, why_not: str = "") -> None:
        self.root = root
        self.why_not = why_not

    def make(self, job_id: str, attempt: int) -> str:
        """A new cgroup's path for one start of a job; "" where there is none."""
        if self.root is None:
            return ""
        path = self.root / f"job-{job_id}-{attempt}"
        try:
            path.mkdir(exist_ok=True)
        except OSError:
            return ""
        return str(path)

    def sweep(self) -> None:
        """Remove those that are empty."""
        for path in self.root.glob("job-*") if self.root is not None else ():
            remove(str(path))

    def close(self) -> None:
        """The daemon ends; what jobs are in stays."""
        self.sweep()
        if self.root is not None:
            with suppress(OSError):
                self.root.rmdir()


def find(instance: Path, *, wanted: bool = True) -> Cgroups:
    """Where a daemon, told from others by its directory, may make cgroups."""
    if not wanted:
        return Cgroups(None, "switched off (local.cgroups)")
    own = _own_directory()
    if own is None:
        return Cgroups(None, "no cgroup version 2 here")
    if not os.access(own / "cgroup.procs", os.W_OK):
        return Cgroups(None, f"{own} is not delegated to this user")
    mark = hashlib.sha256(os.fsencode(instance)).hexdigest()[:8]
    root = own / f"lazer-{mark}"
    try:
        root.mkdir(exist_ok=True)
    except OSError as error:
        return Cgroups(None, f"{root}: {error.strerror}")
    if not (root / "cgroup.kill").exists():
        with suppress(OSError):
            root.rmdir()
        return Cgroups(None, "the kernel has no cgroup.kill (Linux 5.14)")
    return Cgroups(root)


def members(cgroup: str) -> set[int]:
    """The processes of a cgroup and of those below it."""
    found: set[int] = set()
    for directory, _, _ in os.walk(cgroup) if cgroup else ():
        with suppress(OSError):
            found.update(int(pid) for pid in _read(f"{directory}/cgroup.procs").split())
    return found


def kill(cgroup: str) -> None:
    """SIGKILL to all of it at once, also to what is just being forked."""
    if cgroup:
        with suppress(OSError):
            Path(cgroup, "cgroup.kill").write_text("1")


def remove(cgroup: str) -> None:
    """Give an empty cgroup back, with those that the job made below it."""
    if cgroup:
        for directory, _, _ in os.walk(cgroup, topdown=False):
            with suppress(OSError):
                Path(directory).rmdir()


def _own_directory() -> Path | None:
    mount = next(
        (line.split()[4] for line in _read(_MOUNTS).splitlines() if " - cgroup2 " in line), None
    )
    own = next((line[3:] for line in _read(_OWN).splitlines() if line.startswith("0::")), None)
    return Path(mount + own) if mount is not None and own is not None else None


def _read(path: Path | str) -> str:
    return Path(path).read_text(encoding="utf-8")
