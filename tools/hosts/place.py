"""A place where processes of one host run: its namespaces, and all that lives in them.

A process belongs to a host when it is in the host's network namespace, whoever started it. So
signals go by pid to just those, and nothing is ever looked for by its name.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.hosts import mounts, netns
from tools.hosts.errors import ClusterError

END_S = 15.0
ABORT_AFTER_S = 1.0
"""What has not ended by then waits for a file system that does not answer."""
_LOOK_EVERY_S = 0.02


@dataclass(frozen=True)
class Place:
    """`seclusion` has the pid of who keeps its mount namespace; None: it has the machine's."""

    name: str
    namespace: str
    home: Path
    seclusion: Path | None = None
    switch: str = ""

    def inside(
        self,
        command: Sequence[str | Path],
        *,
        environment: Mapping[str, str] | None = None,
        directory: Path = Path("/"),
    ) -> list[str]:
        """The command line that runs a command there. Raises `ClusterError`."""
        entered = ["nsenter", f"--net={netns.file_of(self.namespace)}"]
        entered += [f"--mount={self._mount_namespace()}"] if self.seclusion else []
        variables = [f"{key}={value}" for key, value in (environment or {}).items()]
        # Entering a mount namespace leads to its root, so the directory is chosen after it.
        return [*entered, "--", "env", "-C", str(directory), *variables, *map(str, command)]

    def _mount_namespace(self) -> str:
        assert self.seclusion is not None
        with contextlib.suppress(OSError):
            keeper = int(self.seclusion.read_text())
            if keeper in netns.pids([self.switch]):  # and not somebody who has its pid by now
                return f"/proc/{keeper}/ns/mnt"
        raise ClusterError(f"{self.name} has lost its mount namespace: take the cluster down")

    def pids(self) -> list[int]:
        """Every process of this host."""
        return netns.pids([self.namespace])

    def send(self, number: signal.Signals) -> None:
        """Send a signal to every process of this host."""
        send(self.pids(), number)

    def end(self) -> None:
        """Kill every process of this host, and take its FUSE mounts away. Raises `ClusterError`."""
        end(self.pids, self.home)
        mounts.detach_all([mount for mount in mounts.below(self.home) if mount.is_fuse])


def send(pids: Sequence[int], number: signal.Signals) -> None:
    """Send a signal to each; who is gone meanwhile has nothing to do with it."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def end(pids: Callable[[], list[int]], home: Path) -> None:
    """Kill until none is left: one that was just starting another is looked for again.

    What waits for a FUSE mount below `home` is let go by aborting it. Raises `ClusterError`.
    """
    start = time.monotonic()
    aborted = False
    while left := pids():
        send(left, signal.SIGKILL)
        waited_s = time.monotonic() - start
        if waited_s > ABORT_AFTER_S and not aborted:
            mounts.abort(home, mounts.below(home))
            aborted = True
        if waited_s > END_S:
            raise ClusterError(f"these processes cannot be killed: {', '.join(map(str, left))}")
        time.sleep(_LOOK_EVERY_S)
