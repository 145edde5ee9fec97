"""A lazerd in a process of its own, with a directory of its own, and nothing left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lazerd.backend import cgroup
from lazerd.backend.processes import everything, with_variables
from lazerd.client import SOCKET_NAME, Client
from lazerd.errors import LazerError

PATIENCE_S = 30.0
POLL_S = 0.03


class Lazerd:
    """`lazerd --local --gpus N` below a directory; it can be killed and started again."""

    def __init__(self, directory: Path, gpus: int = 4, *options: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.state = directory / "state"
        self.log = directory / "lazerd.log"
        self.socket = self.state / SOCKET_NAME
        self.client = Client(self.socket)
        self.options: list[str] = ["--local", "--gpus", str(gpus), *options]
        self.process: subprocess.Popen[bytes] | None = None

    # --- the daemon ----------------------------------------------------------------------------

    def start(self) -> Lazerd:
        """Start it; returns when it answers."""
        reader, writer = os.pipe()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.command(), "-v", "--ready-fd", str(writer)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[writer],
                env=self.environment(),
            )
        os.close(writer)
        try:
            assert os.read(reader, 16), self.log.read_text()
        finally:
            os.close(reader)
        return self

    def command(self) -> list[str]:
        return [sys.executable, "-m", "lazerd", *self.options, "--state-dir", str(self.state)]

    def environment(self) -> dict[str, str]:
        found = {k: v for k, v in os.environ.items() if not k.startswith(("LAZER", "CUDA"))}
        return found | {"LAZER_SOCKET": str(self.socket), "HERE": str(self.directory)}

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; answers the exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: int) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        process.send_signal(number)
        return process.wait(PATIENCE_S)

    def refuses(self) -> tuple[int, str]:
        """Start it where it cannot start: exit code and what it says."""
        done = subprocess.run(
            self.command(),
            capture_output=True,
            text=True,
            env=self.environment(),
            timeout=PATIENCE_S,
            check=False,
        )
        return done.returncode, done.stderr.strip()

    def clear(self) -> None:
        """End the daemon and every process of its jobs, by pid."""
        with contextlib.suppress(Exception):
            self._end(signal.SIGKILL)
        for _ in range(50):
            left = self.left()
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not left:
                break
            time.sleep(0.02)
        self._remove_cgroups()

    def _remove_cgroups(self) -> None:
        remove_cgroups(cgroup.find(self.state))

    def left(self) -> set[int]:
        """Processes of ours: started with our environment, supervisors included, or as our jobs."""
        stats = everything()
        ours = with_variables([f"HERE={self.directory}"], stats)
        jobs = with_variables([f"LAZER_SOCKET={self.socket}"], stats)
        return (ours | jobs) - {os.getpid()}

    # --- what users do -------------------------------------------------------------------------

    def run(self, *arguments: str, code: int = 0) -> str:
        """`lazer ARGUMENTS`, for its output; its errors too when another code is expected."""
        done = subprocess.run(
            [sys.executable, "-c", "from lazerd.cli import main; main()", *arguments],
            capture_output=True,
            text=True,
            env=self.environment(),
            cwd=self.directory,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        return done.stdout if code == 0 else done.stderr.strip()

    def submit(self, *command: str, gpus: int = 1, **more: Any) -> str:
        answer = self.client.ask(
            "submit",
            command=command,
            directory=str(self.directory),
            environment=self.environment(),
            gpus=gpus,
            output="%j.out",
            **more,
        )
        job: str = answer["job"]
        return job

    def script(self, text: str, gpus: int = 1, **more: Any) -> str:
        """A job that is a piece of Python, without site-packages: it starts at once."""
        return self.submit(sys.executable, "-S", "-c", text, gpus=gpus, **more)

    def rows(self) -> dict[str, dict[str, Any]]:
        return {row["job"]: row for row in self.client.ask("queue")}

    def history(self) -> dict[str, dict[str, Any]]:
        return {row["job"]: row for row in self.client.ask("history", limit=10_000)}

    def explain(self, job: str) -> dict[str, Any]:
        found: dict[str, Any] = self.client.ask("explain", job=job)
        return found

    def state_of(self, job: str) -> str:
        return str(self.explain(job)["state"])

    def working(self, job: str) -> None:
        self.client.ask("working", job=job)

    def until(self, is_so: Callable[[], Any], limit_s: float = PATIENCE_S) -> Any:
        """What a question answers, once that is true."""
        deadline = time.monotonic() + limit_s
        while True:
            with contextlib.suppress(LazerError):
                if answer := is_so():
                    return answer
            assert time.monotonic() < deadline, self.log.read_text()[-4000:]
            time.sleep(POLL_S)

    def until_state(self, job: str, *states: str, limit_s: float = PATIENCE_S) -> dict[str, Any]:
        found: dict[str, Any] = self.until(
            lambda: (e := self.explain(job))["state"] in states and e, limit_s
        )
        return found

    def output(self, job: str) -> str:
        path = self.directory / f"{job}.out"
        return path.read_text() if path.exists() else ""

    def decided(self, *kinds: str) -> list[tuple[str, str]]:
        """(kind, job) of every decision in the store, in order; read beside the daemon."""
        import sqlite3

        with contextlib.closing(sqlite3.connect(self.state / "lazer.db")) as db:
            rows = db.execute("SELECT kind, job_id FROM decision ORDER BY number").fetchall()
        return [(kind, job) for kind, job in rows if not kinds or kind in kinds]


@contextlib.contextmanager
def lazerd(
    directory: Path, gpus: int = 4, *options: str, policy: str = "", more: str = ""
) -> Iterator[Lazerd]:
    """One that runs, and is gone afterwards with all of its jobs.

    With a `policy`, such as `srsf/nosetup`, durations are what their submitters say.
    """
    made = Lazerd(directory, gpus, *options)
    if policy:
        path = directory / "lazer.toml"
        path.write_text(
            f'[local]\ngpus = {gpus}\n[policy]\nname = "{policy}"\ninformation = "given"\n{more}'
        )
        made.options = ["-c", str(path)]
    try:
        yield made.start()
    finally:
        made.clear()


def remove_cgroups(cgroups: cgroup.Cgroups) -> None:
    """Those of a daemon whose jobs have been killed: the last of them may still be on its way."""
    for _ in range(100):
        cgroups.close()
        if cgroups.root is None or not cgroups.root.exists():
            return
        time.sleep(0.02)


def as_json(text: str) -> Any:
    return json.loads(text)


def columns(text: str) -> list[Sequence[str]]:
    return [line.split() for line in text.splitlines()]
