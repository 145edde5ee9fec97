"""Reads /proc: the job of a process, through its cgroup, its environment, its ancestors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from lazerd.sensor.ownership import Realm, job_in_cgroup, job_in_environ, parent_in_status

MAX_ANCESTORS = 64
"""More than any launcher nests; bounds what a process tree that changes meanwhile can cost."""
INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO of linux/proc_ns.h."""


class JobFinder:
    """Finds the jobs of one realm. `proc` is where /proc is mounted.

    NVML gives pids of the host, or of the caller's namespace, depending on the driver. On the host
    both are the same. Elsewhere a number may belong to another process here, so a process counts
    only if it is seen to have an NVIDIA device open (`trusts_pids` False).
    """

    def __init__(
        self, realm: Realm, proc: Path = Path("/proc"), trusts_pids: bool | None = None
    ) -> None:
        self._realm = realm
        self._proc = proc
        self.trusts_pids = _is_initial(proc) if trusts_pids is None else trusts_pids

    def job_of(self, pid: int) -> str | None:
        """The process's job, "" when it has none; None when it has ended or is not seen from here.

        May block on a process that is stuck in the kernel (its environment is read under a lock
        that such a process can hold), but only if its cgroup tells nothing.
        """
        if not self.trusts_pids and not self._holds_device(pid):
            return None
        if not (self._proc / str(pid)).exists():
            return None
        return self._by_cgroup(pid) or self._by_environ(pid) or ""

    def _by_cgroup(self, pid: int) -> str | None:
        return job_in_cgroup(self._text(pid, "cgroup"), self._realm)

    def _by_environ(self, pid: int) -> str | None:
        for each in self._with_ancestors(pid):
            job_id = job_in_environ(self._bytes(each, "environ"), self._realm)
            if job_id is None and each != pid:
                job_id = self._by_cgroup(each)
            if job_id is not None:
                return job_id
        return None

    def _with_ancestors(self, pid: int) -> Iterator[int]:
        for _ in range(MAX_ANCESTORS):
            if pid <= 1:
                return
            yield pid
            pid = parent_in_status(self._text(pid, "status"))

    def _holds_device(self, pid: int) -> bool:
        try:
            names = os.listdir(self._proc / str(pid) / "fd")
        except OSError:
            return False
        return any(self._link(pid, name).startswith("/dev/nvidia") for name in names)

    def _link(self, pid: int, name: str) -> str:
        with suppress(OSError):
            return os.readlink(self._proc / str(pid) / "fd" / name)
        return ""

    def _text(self, pid: int, name: str) -> str:
        return self._bytes(pid, name).decode("utf-8", "replace")

    def _bytes(self, pid: int, name: str) -> bytes:
        with suppress(OSError):
            return (self._proc / str(pid) / name).read_bytes()
        return b""


def _is_initial(proc: Path) -> bool:
    with suppress(OSError):
        return os.readlink(proc / "self" / "ns" / "pid") == INITIAL_PID_NAMESPACE
    return False
