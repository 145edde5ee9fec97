"""Child processes of the demo: each in a session of its own, ended with all that it started.

A mount is two processes, the keeper and its daemon, in one process group.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from cachexfs.demo.waiting import NotTrue, Waiting

READY_S = 30.0
END_S = 10.0
_LOOK_EVERY_S = 0.01


class Child:
    """One process. `output` takes what it prints, `log` what it complains about."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str | Path],
        log: Path,
        *,
        output: Path | None = None,
        environment: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self.log = log
        command = [sys.executable, "-m", module, *map(str, arguments)]
        with log.open("ab") as errors, (output or log).open("ab") as printed:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=errors,
                env=None if environment is None else {**os.environ, **environment},
                pass_fds=pass_fds,
                start_new_session=True,  # Ctrl-C is for the demo, which ends its children in order
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to it and to what it started, as far as they still run."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal and wait for the end; one that does not obey is killed."""
        for attempt in (number, signal.SIGKILL):
            self.send(attempt)
            if self._has_ended(END_S):
                return

    def _has_ended(self, within_s: float) -> bool:
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            self._process.poll()
            try:
                os.killpg(self.pid, 0)
            except ProcessLookupError:
                return True
            time.sleep(_LOOK_EVERY_S)
        return False

    def last_words(self) -> str:
        """The last line of its log."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


class Daemon(Child):
    """`cachexfs ARGUMENTS -f`, which says when it is ready."""

    def __init__(self, arguments: Sequence[str | Path], log: Path) -> None:
        self._ready, writer = os.pipe()
        try:
            told = ["-f", "--ready-fd", str(writer)]
            super().__init__("cachexfs", [*arguments, *told], log, pass_fds=[writer])
        finally:
            os.close(writer)

    def wait_ready(self, waiting: Waiting) -> None:
        """Return when it is ready. Raises `NotTrue` with what it said instead."""
        try:
            waiting.until(self._has_spoken, f"{self.log.stem} is ready", READY_S)
            if not os.read(self._ready, 16):
                self.end()
                raise NotTrue(f"{self.log.stem} did not start: {self.last_words()}")
        finally:
            os.close(self._ready)

    def _has_spoken(self) -> bool:
        return bool(select.select([self._ready], [], [], 0)[0])
