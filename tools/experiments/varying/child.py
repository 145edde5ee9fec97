"""A process on a host that takes lines and gives lines."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import msgspec

from tools.experiments.varying.saver import Answer, Order
from tools.hosts.errors import ClusterError
from tools.hosts.host import Host
from tools.hosts.system import module

ENDS_S = 5.0
JOB = {"LAZER_JOB_ID": "variability", "OMP_NUM_THREADS": "1"}


class Child:
    """Of a module of this package, on a host. `end` must be called, whatever happens."""

    def __init__(self, host: Host, name: str, arguments: Sequence[object], log: Path) -> None:
        self.name = name
        words = module(f"tools.experiments.varying.{name}", *map(str, arguments))
        with log.open("ab") as complaints:
            self._process = subprocess.Popen(
                host.command(words, environment=JOB),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints,
                start_new_session=True,
            )  # fmt: skip
        self._log = log

    def say(self, line: str) -> None:
        """Raises `ClusterError` when it has died."""
        try:
            _pipe(self._process.stdin).write(line.encode() + b"\n")
            _pipe(self._process.stdin).flush()
        except OSError:
            raise self._died() from None

    def hear(self) -> bytes:
        """The next line. Raises `ClusterError` when it has died."""
        if not (line := _pipe(self._process.stdout).readline()):
            raise self._died()
        return line

    def _died(self) -> ClusterError:
        said = self._log.read_text(errors="replace").strip().splitlines()
        return ClusterError(f"{self.name} died: {said[-1] if said else 'it said nothing'}")

    def end(self) -> None:
        """By the id of the process that was started for it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDS_S)


class SaverChild(Child):
    """The training program on a host; ready when this returns."""

    def __init__(self, host: Host, core: int, layers: int, log: Path) -> None:
        super().__init__(host, "saver", [core, layers], log)

    def ready(self) -> None:
        """PyTorch is imported and the state is there."""
        self.hear()

    def ask(self, order: Order) -> Answer:
        """Raises `ClusterError` for a save that failed: none may."""
        self.say(msgspec.json.encode(order).decode())
        answer = msgspec.json.decode(self.hear(), type=Answer)
        if answer.error:
            raise ClusterError(f"{order.path}: {answer.error}")
        return answer


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe
