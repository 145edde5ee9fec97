"""What is kept on disk of one job while it lives: for whoever comes after this daemon.

`launch.json` is what to run and on which GPUs; `run.json`, `exit.json` and `over.json` are the
supervisor's; `leaving.json` says when the job was told to go. All are replaced whole; each names
the start of the job (`attempt`) that it is about. It lies on the same machine and boot as the job,
so what a power cut would take is gone with the job itself.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lazerd.backend.processes import Named

NOBODY = Named(0, 0)


@dataclass(frozen=True, slots=True)
class Run:
    """One start of a job as it was written down."""

    attempt: int
    gpus: tuple[int, ...]
    cgroup: str
    supervisor: Named
    main: Named


@dataclass(frozen=True, slots=True)
class End:
    """How the first process of a job ended; `error` says why it could not begin."""

    code: int
    error: str = ""


class JobDirectory:
    """The files of one job."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def prepare(self, launch: dict[str, Any]) -> None:
        """Write down what is to be run. Raises OSError."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._write("launch.json", launch)

    def run(self, attempt: int) -> Run | None:
        """Who runs, when this start of the job has begun."""
        run = self.last_run()
        return run if run is not None and run.attempt == attempt else None

    def last_run(self) -> Run | None:
        """The start that was written down last, when it has begun."""
        launch, run = self._read("launch.json"), self._read("run.json")
        if not run or launch.get("attempt") != run["attempt"]:
            return None
        return Run(
            run["attempt"],
            tuple(launch["gpus"]),
            launch["cgroup"],
            Named(**run["supervisor"]),
            Named(**run["main"]),
        )

    def gpus(self, attempt: int) -> tuple[int, ...]:
        """The GPUs that were picked for a start, whether or not it has begun."""
        launch = self._read("launch.json")
        return tuple(launch["gpus"]) if launch.get("attempt") == attempt else ()

    def end(self, attempt: int) -> End | None:
        """How the first process ended, when it has."""
        end = self._read("exit.json")
        return End(end["code"], end.get("error", "")) if end.get("attempt") == attempt else None

    def is_over(self, attempt: int) -> bool:
        """Whether the supervisor saw the last process of this start go."""
        return bool(self._read("over.json").get("attempt") == attempt)

    def told_to_go_at(self, attempt: int) -> float | None:
        """When this start was signalled (seconds since the epoch)."""
        leaving = self._read("leaving.json")
        return leaving["at"] if leaving.get("attempt") == attempt else None

    def tell_to_go(self, attempt: int, at_s: float) -> None:
        """Write down that it is being signalled, so that it is signalled once. Raises OSError."""
        self._write("leaving.json", {"attempt": attempt, "at": at_s})

    def remove(self) -> None:
        """The job is over."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _read(self, name: str) -> dict[str, Any]:
        try:
            content = json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def _write(self, name: str, content: dict[str, Any]) -> None:
        new = self.path / f"{name}.new"
        new.write_text(json.dumps(content), encoding="utf-8")
        os.replace(new, self.path / name)


def below(directory: Path) -> Iterator[tuple[str, JobDirectory]]:
    """The jobs that have a directory, by id."""
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        yield path.name, JobDirectory(path)
