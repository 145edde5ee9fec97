"""Starting one job: its directory, its environment, its supervisor."""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lazerd.backend.jobdir import JobDirectory
from lazerd.backend.protocol import Launch
from lazerd.client import JOB_VARIABLE, SOCKET_VARIABLE

SUPERVISOR = Path(__file__).with_name("supervisor.py")
TORCHRUN_KILLS_AFTER_S = 30
"""torchrun's own grace for its workers: `shutdown_timeout` in torch/distributed/elastic/agent."""
TORCHRUN_GRACE = "PET_SHUTDOWN_TIMEOUT"
"""What sets it from outside (`torchrun --shutdown-timeout`); releases without it wait 30 s."""


class CannotStart(Exception):
    """The job cannot be started as it was submitted; `code` is what a shell would answer."""

    def __init__(self, why: str, code: int) -> None:
        super().__init__(why)
        self.code = code


@dataclass(frozen=True, slots=True)
class Place:
    """Where a start of a job runs: its GPUs by number and as CUDA names them, its cgroup."""

    gpus: tuple[int, ...]
    visible: str
    cgroup: str
    socket: str


def environment(launch: Launch, place: Place) -> dict[str, str]:
    """What the job finds in its environment: the submitter's, and what it has to know."""
    found = dict(launch.environment)
    if launch.grace_s > TORCHRUN_KILLS_AFTER_S:
        found.setdefault(TORCHRUN_GRACE, str(math.ceil(launch.grace_s)))
    # Last, so that it hides nothing of the submitter's: `lazer working` is found wherever we are.
    path = f"{found.get('PATH', os.defpath)}{os.pathsep}{Path(sys.executable).parent}"
    return found | {
        "PATH": path,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # NVML's order
        "CUDA_VISIBLE_DEVICES": place.visible,
        JOB_VARIABLE: launch.job_id,
        SOCKET_VARIABLE: place.socket,
        "LAZER_ATTEMPT": str(launch.attempt),
    }


def spawn(directory: JobDirectory, launch: Launch, place: Place) -> int:
    """Start a job; its supervisor's pid, when its command runs. Blocks, for milliseconds.

    Raises `CannotStart` when it never will, OSError when there is no room to write it down.
    """
    directory.prepare(_plan(launch, place))
    command: Sequence[str] = (sys.executable, "-S", "-E", "-s", str(SUPERVISOR))
    supervisor = subprocess.Popen(
        [*command, str(directory.path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
        cwd="/",
    )
    assert supervisor.stdout is not None
    with supervisor.stdout as pipe:
        answer = _parse(pipe.readline())
    if "error" in answer:
        supervisor.wait()
        raise CannotStart(answer["error"], answer["code"])
    supervisor.returncode = 0  # it lives on; who waits for it does so by its pid
    return supervisor.pid


def _plan(launch: Launch, place: Place) -> dict[str, Any]:
    output = str(Path(launch.directory, launch.output.replace("%j", launch.job_id)))
    error = launch.error and str(Path(launch.directory, launch.error.replace("%j", launch.job_id)))
    return {
        "attempt": launch.attempt,
        "command": launch.command,
        "directory": launch.directory,
        "environment": environment(launch, place),
        "output": output,
        "error": error,
        "uid": launch.uid,
        "gid": launch.gid,
        "groups": launch.groups,
        "gpus": place.gpus,
        "cgroup": place.cgroup,
    }


def _parse(line: bytes) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        answer = json.loads(line)
        if isinstance(answer, dict):
            return answer
    return {"error": "the supervisor of the job ended before the job began", "code": 126}
