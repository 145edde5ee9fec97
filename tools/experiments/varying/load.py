"""What the storage host does meanwhile: bytes that reach it, and CPU time of its brick.

Read from /proc of a process there, so that looking costs the host nothing.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import msgspec

from tools.benchmarks import cpu

EVERY_S = 1.0


class Load(msgspec.Struct, frozen=True):
    """In the second before `at_s` (time.time()): megabits a second each way, part of a core."""

    at_s: float
    in_mbit: float
    out_mbit: float
    cpu: float


class Watch:
    """Of the processes of the storage host, `pids`; the first one's network is looked at."""

    def __init__(self, pids: list[int], device: str = "pfs") -> None:
        self.loads: list[Load] = []
        self._pids = pids
        self._device = device
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Look each second from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        before = self._look()
        while not self._over.wait(EVERY_S):
            try:
                now = self._look()
            except OSError:  # the cluster goes down
                return
            took_s = now[0] - before[0]
            self.loads.append(
                Load(
                    at_s=round(time.time(), 2),
                    in_mbit=round((now[1] - before[1]) * 8e-6 / took_s, 1),
                    out_mbit=round((now[2] - before[2]) * 8e-6 / took_s, 1),
                    cpu=round((now[3] - before[3]) / took_s, 3),
                )
            )
            before = now

    def _look(self) -> tuple[float, int, int, float]:
        received, sent = counters(Path(f"/proc/{self._pids[0]}/net/dev").read_text(), self._device)
        return time.monotonic(), received, sent, sum(cpu.used_s(pid) for pid in self._pids)


def counters(text: str, device: str) -> tuple[int, int]:
    """Bytes received and sent by a device, from the text of /proc/net/dev. Raises LookupError."""
    for line in text.splitlines():
        name, _, fields = line.partition(":")
        if name.strip() == device:
            return int(fields.split()[0]), int(fields.split()[8])
    raise LookupError(device)
