"""Forty real jobs, and the same as a trace in the replay tool: the same decisions, one by one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import trio

from lazerd.memory import records
from lazerd.memory.store import Store
from lazerd.model.actions import Preempt, Start
from tests.cluster import lazerd_forty as forty
from tests.lazerd_at_work import Lazerd
from tools.replay.driver import Task

SEED = 5990
"""Four preemptions in 72 steps; among the first 8,000 seeds none has as many in so short a time."""
STEPS_S = (0.5, 1.5)
"""A machine that is too busy to keep up with the first is given the second."""
ROOT = Path(__file__).parents[2]


class Stepping(Lazerd):
    """`lazerd --local --gpus 4`, with a clock that goes in steps."""

    def command(self) -> list[str]:
        return [sys.executable, "-m", "tests.cluster.lazerd_forty", str(self.state)]

    def environment(self) -> dict[str, str]:
        return super().environment() | {"PYTHONPATH": str(ROOT)}

    def start(self) -> Lazerd:
        reader, writer = os.pipe()
        self.process = self._started(writer)
        os.close(writer)
        assert os.read(reader, 16), self.log.read_text()
        os.close(reader)
        return self

    def _started(self, ready_fd: int) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*self.command(), str(ready_fd)],
                stdout=log,
                stderr=log,
                pass_fds=[ready_fd],
                env=self.environment(),
                cwd=ROOT,
            )


def decided(daemon: Lazerd) -> list[forty.Decided]:
    """What the daemon's own log says, once it has stopped."""
    store = Store(daemon.state)
    try:
        return [
            (int(cycle.at_s), type(action).__name__, action.job_id)
            for cycle in store.cycles()
            for action in records.decode(cycle.actions)
            if isinstance(action, Start | Preempt)
        ]
    finally:
        store.close()


def played(
    directory: Path, trace: list[Task], step_s: float, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[forty.Decided], dict[str, dict[str, Any]]]:
    """What a daemon decides, and its history in the end."""
    monkeypatch.setenv(forty.STEP, str(step_s))
    monkeypatch.setenv(forty.EPOCH, str(time.time() + 3.0))
    daemon = Stepping(directory)

    def submit(task: Task) -> str:
        return daemon.submit(
            sys.executable,
            "-c",
            forty.JOB,
            str(task.setup_s),
            str(task.duration_s),
            gpus=task.spec.gpus,
            name=task.spec.name,
            estimate_s=task.spec.estimate_s,
            grace_s=5.0,
        )

    try:
        daemon.start()
        trio.run(forty.play, trace, submit)
        daemon.until(lambda: not daemon.rows(), 90.0)
        history = daemon.history()
        daemon.kill()
        return decided(daemon), history
    finally:
        daemon.clear()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_daemon_decides_as_the_replay_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = forty.tasks(SEED)
    expected = forty.replayed(trace)
    for step_s in STEPS_S:
        began = time.monotonic()
        found, history = played(tmp_path / f"{step_s}", trace, step_s, monkeypatch)
        took_s = time.monotonic() - began
        assert [job["exit_code"] for job in history.values()] == [0] * forty.JOBS
        assert sum(job["futile_preemptions"] for job in history.values()) == 0
        print(f"steps of {step_s} s, {took_s:.0f} s: {as_text(found, expected)}")
        if found == expected:
            return
    assert found == expected


def as_text(found: list[forty.Decided], expected: list[forty.Decided]) -> str:
    """What was decided, and how much of it as in the replay."""
    same = sum(ours == theirs for ours, theirs in zip(found, expected, strict=False))
    preemptions = sum(what == "Preempt" for _, what, _ in expected)
    starts = len(expected) - preemptions
    of = f"{len(expected)} ({starts} starts, {preemptions} preemptions)"
    return f"{same} of {of} are the same"
