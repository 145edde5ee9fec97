"""The ranks of a run, seen from outside: started on their hosts, heard, ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tools.experiments.recovering.plan import Errand
from tools.hosts.errors import ClusterError
from tools.hosts.host import Host
from tools.hosts.system import module

JOB = {"LAZER_JOB_ID": "recover32", "OMP_NUM_THREADS": "1"}
"""One job, as under a manager of jobs; without, every process would be of its own cgroup."""
ENDS_S = 10.0
_LOOK_EVERY_S = 0.05
_LAUNCH = "tools.experiments.recovering.launch"


class Ranks:
    """The processes of one run. `end` must be called, whatever happens."""

    def __init__(self, told: Path) -> None:
        self.told = told
        self.told.mkdir()
        self._launched: list[tuple[str, subprocess.Popen[bytes]]] = []

    def start(self, host: Host, errand: Errand) -> None:
        """Start the ranks of one host; what they complain about goes to a log beside `told`."""
        command = module(_LAUNCH, msgspec.json.encode(errand).decode())
        process = host.popen(command, self._log(host.name), environment=JOB)
        self._launched.append((host.name, process))

    def start_here(self, errand: Errand) -> None:
        """Start ranks that are on no host."""
        command = module(_LAUNCH, msgspec.json.encode(errand).decode())
        with self._log("here").open("ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, **JOB}, cwd="/",
            )  # fmt: skip
        self._launched.append(("here", process))

    def heard(self, key: str) -> list[dict[str, Any]]:
        """What ranks said that has this key, by rank."""
        files = sorted(self.told.glob("rank-*"), key=lambda path: int(path.name[5:]))
        lines = [line for path in files for line in path.read_text().splitlines(keepends=True)]
        said: list[dict[str, Any]] = [json.loads(line) for line in lines if line.endswith("\n")]
        return [each for each in said if key in each]

    def wait(self, condition: Callable[[], bool], what: str, limit_s: float) -> None:
        """Until something is so. Raises `ClusterError` when ranks fail before, or it takes long."""
        deadline = time.monotonic() + limit_s
        while not condition():
            failed = [name for name, process in self._launched if process.poll()]
            if failed or time.monotonic() > deadline:
                why = (
                    f"ranks failed on {', '.join(failed)}" if failed else f"not in {limit_s:.0f} s"
                )
                raise ClusterError(f"{what}: {why}: {self._complaints(failed)}")
            time.sleep(_LOOK_EVERY_S)

    def wait_until_said(self, key: str, count: int, limit_s: float) -> None:
        """Until so many ranks have said something. Raises `ClusterError`."""
        self.wait(lambda: len(self.heard(key)) >= count, f"{count} x {key!r}", limit_s)

    def end(self) -> None:
        """Those that are left, by the ids of the processes that were started for them."""
        deadline = time.monotonic() + ENDS_S
        for _, process in self._launched:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))

    def _log(self, name: str) -> Path:
        return self.told.parent / f"{self.told.name}.{name}.log"

    def _complaints(self, names: Sequence[str]) -> str:
        texts = [self._log(name).read_text(errors="replace").strip() for name in names]
        return " | ".join(text.splitlines()[-1] for text in texts if text) or "they said nothing"
