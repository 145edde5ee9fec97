"""Asking a running daemon: one JSON line out, one JSON line back, over its Unix socket.

Plain blocking sockets: `lazer queue` must answer faster than an event loop can be imported.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cachexfs.client import exchange
from lazerd.errors import BY_NAME, LazerError, NotRunning, TimedOut

SOCKET_NAME = "control.sock"
SOCKET_VARIABLE = "LAZER_SOCKET"
JOB_VARIABLE = "LAZER_JOB_ID"
SYSTEM_RUN_DIR = Path("/run/lazer")
ANSWER_S = 10.0
"""A daemon that is alive answers in milliseconds; one that writes to a slow disk, in seconds."""


def run_dirs(environment: Mapping[str, str]) -> Iterator[Path]:
    """Where a daemon's socket may be, best first: this user's own, then the machine's."""
    if runtime := environment.get("XDG_RUNTIME_DIR"):
        yield Path(runtime) / "lazer"
    if home := environment.get("HOME"):
        yield Path(environment.get("XDG_STATE_HOME") or f"{home}/.local/state") / "lazer"
    yield SYSTEM_RUN_DIR


def this_job(environment: Mapping[str, str]) -> str | None:
    """The job that a process with this environment is part of, by the name that lazerd knows.

    Slurm gives each task of an array a number of its own, but shows it under the array's.
    """
    if array := environment.get("SLURM_ARRAY_JOB_ID"):
        in_slurm = f"{array}_{environment.get('SLURM_ARRAY_TASK_ID', '')}"
    else:
        in_slurm = environment.get("SLURM_JOB_ID", "")
    return environment.get(JOB_VARIABLE) or in_slurm or None


def find_socket(environment: Mapping[str, str] = os.environ) -> Path:
    """LAZER_SOCKET, or the first socket that is there; the machine's when none is."""
    if named := environment.get(SOCKET_VARIABLE):
        return Path(named)
    for directory in run_dirs(environment):
        if (path := directory / SOCKET_NAME).exists():
            return path
    return SYSTEM_RUN_DIR / SOCKET_NAME


class Client:
    """One daemon, by its socket. Raises `NotRunning`, and the errors that the daemon answers."""

    def __init__(self, socket_path: Path) -> None:
        self.socket_path = socket_path

    def ask(self, verb: str, *, patience_s: float | None = ANSWER_S, **arguments: Any) -> Any:
        """Send a request and wait for its answer; `patience_s` None waits for ever."""
        try:
            answer = exchange(self.socket_path, {"verb": verb, **arguments}, patience_s)
        except TimeoutError:
            raise TimedOut(f"lazerd does not answer at {self.socket_path}") from None
        except PermissionError:
            raise LazerError(f"{self.socket_path}: permission denied") from None
        except OSError as error:
            raise NotRunning(f"lazerd is not running: {self.socket_path}: {_why(error)}") from None
        return _unpack(answer)


def _why(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _unpack(answer: bytes) -> Any:
    try:
        fields = json.loads(answer)
    except ValueError:
        raise LazerError("lazerd answers nonsense") from None
    if "error" in fields:
        raise BY_NAME.get(fields["error"], LazerError)(fields.get("detail", fields["error"]))
    return fields["answer"]
