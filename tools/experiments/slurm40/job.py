"""What a job runs: `python job.py SETUP_S WORK_S SAVED LOG`.

Each process appends lines to its log: what happened, when, and which GPUs it has. The first one of
a gang counts the work, and says so to lazerd where there is one.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

STEP_S = 0.1


class Told(Exception):
    """A signal came."""


def main(setup_s: float, work_s: float, saved: Path, log: Path) -> int:
    """Set up, work, save; 0 when all the work is done."""
    signal.signal(signal.SIGTERM, _told)
    done_s = float(saved.read_text()) if saved.exists() else 0.0
    try:
        _write(log, "setup")
        _sleep(setup_s)
        _write(log, "work")
        if _is_first():
            threading.Thread(target=_say_so, daemon=True).start()
        while done_s < work_s:
            began_s = time.monotonic()
            time.sleep(STEP_S)
            done_s += time.monotonic() - began_s
            _write(log, "step")
    except Told:
        if _is_first():
            fresh = saved.with_suffix(".new")
            fresh.write_text(str(done_s))
            fresh.replace(saved)
        _write(log, "told", done_s=done_s)
        return 143
    _write(log, "done")
    return 0


def _told(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Told


def _sleep(seconds: float) -> None:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        time.sleep(min(STEP_S, max(0.0, until_s - time.monotonic())))


def _is_first() -> bool:
    return os.environ.get("SLURM_PROCID", "0") == "0"


def _say_so() -> None:
    """`lazer working`, again while lazerd is away."""
    if "LAZER_SOCKET" not in os.environ:
        return
    from lazerd.client import Client, find_socket
    from lazerd.errors import LazerError

    while True:
        try:
            Client(find_socket()).ask("working", job=os.environ["SLURM_JOB_ID"])
        except LazerError:
            time.sleep(0.5)
        else:
            return


def _write(log: Path, what: str, **more: Any) -> None:
    line = {
        "at_s": time.time(),
        "what": what,
        "rank": int(os.environ.get("SLURM_PROCID", "0")),
        "restart": int(os.environ.get("SLURM_RESTART_COUNT", "0") or 0),
        "node": os.environ.get("SLURMD_NODENAME", ""),
        "gpus": os.environ.get("SLURM_STEP_GPUS") or os.environ.get("SLURM_JOB_GPUS", ""),
        **more,
    }
    with log.open("a") as file:
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])))
