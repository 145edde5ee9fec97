"""The cases that concern the daemon, under their numbers, with real processes."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lazerd_at_work import Lazerd, lazerd

SAVES = """
import os, signal, sys, time
from pathlib import Path
state = Path("saved")
step = int(state.read_text()) if state.exists() else 0
print("begins at", step, flush=True)
def go(*_):
    state.write_text(str(step)); print("saved", step, flush=True); sys.exit(0)
signal.signal(signal.SIGTERM, go)
while step < %d:
    step += 1; time.sleep(0.05)
print("done at", step, flush=True)
"""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Lazerd]:
    with lazerd(tmp_path, policy="srsf/nosetup") as made:
        yield made


def preempted(daemon: Lazerd) -> list[str]:
    return [job for _, job in daemon.decided("Preempted")]


def test_23_no_job_in_set_up_is_preempted(daemon: Lazerd) -> None:
    long = daemon.submit("sleep", "60", gpus=4, estimate_s=10_000.0)
    daemon.until_state(long, "setup")
    short = daemon.submit("true", gpus=1, estimate_s=1.0)
    time.sleep(1.0)
    assert daemon.rows()[short]["state"] == "pending"
    assert preempted(daemon) == []
    daemon.working(long)
    daemon.until(lambda: short in daemon.history())
    assert preempted(daemon) == [long]
    assert daemon.explain(long)["futile_preemptions"] == 0


def test_27_a_preempted_job_is_pending_again_and_never_failed(daemon: Lazerd) -> None:
    job = daemon.script(SAVES % 60, gpus=4, estimate_s=10_000.0)
    daemon.until(lambda: "begins" in daemon.output(job))
    daemon.working(job)
    time.sleep(0.3)
    other = daemon.submit("sleep", "0.5", gpus=2, estimate_s=1.0)
    daemon.until(lambda: other in daemon.history())
    ended = daemon.until_state(job, "ended")
    assert (ended["exit_code"], ended["preemptions"], ended["attempt"]) == (0, 1, 2)
    lines = daemon.output(job).splitlines()
    assert lines[0] == "begins at 0" and lines[-1] == "done at 60"
    saved = lines[1].removeprefix("saved ")
    assert lines[2] == f"begins at {saved}" and int(saved) > 0


def test_27_a_job_that_ends_badly_when_told_to_go_is_pending_again(daemon: Lazerd) -> None:
    job = daemon.submit("sh", "-c", "echo up; sleep 60", gpus=4, estimate_s=10_000.0)
    daemon.until(lambda: daemon.output(job))
    daemon.working(job)
    other = daemon.script("import time; time.sleep(1)", gpus=4, estimate_s=1.0)
    daemon.until_state(other, "setup")
    assert daemon.rows()[job]["state"] == "pending"
    daemon.until(lambda: other in daemon.history())
    daemon.until_state(job, "setup")


def test_28_the_grace_holds(daemon: Lazerd) -> None:
    """Whoever needs 1 of 2 seconds has it; who needs longer is ended after 2."""
    slow = (
        "import signal, sys, time\n"
        "def go(*_):\n"
        "    time.sleep(%s); print('saved', flush=True); sys.exit()\n"
        "signal.signal(signal.SIGTERM, go); print('up', flush=True)\n"
        "time.sleep(60)"
    )
    quick = daemon.script(slow % 1, gpus=2, estimate_s=10_000.0, grace_s=2.0)
    late = daemon.script(slow % 30, gpus=2, estimate_s=10_000.0, grace_s=2.0)
    for job in (quick, late):
        daemon.until(lambda job=job: "up" in daemon.output(job))
        daemon.working(job)
    began = time.monotonic()
    other = daemon.submit("true", gpus=4, estimate_s=1.0)
    daemon.until(lambda: other in daemon.history())
    assert 2.0 <= time.monotonic() - began < 6.0
    assert "saved" in daemon.output(quick) and "saved" not in daemon.output(late)


def test_28_torchrun_is_told_of_a_grace_that_is_longer_than_its_own(daemon: Lazerd) -> None:
    show = "echo ${PET_SHUTDOWN_TIMEOUT:-its own}"
    long = daemon.submit("sh", "-c", show, grace_s=600.0)
    short = daemon.submit("sh", "-c", show, grace_s=30.0)
    for job, said in ((long, "600\n"), (short, "its own\n")):
        daemon.until_state(job, "ended")
        assert daemon.output(job) == said


def test_29_30_the_jobs_own_signal_reaches_the_whole_tree(daemon: Lazerd) -> None:
    worker = (
        "import os, signal, sys, time\n"
        "saved = f'{sys.argv[1]} saved\\n'.encode()\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "signal.signal(signal.SIGUSR2, lambda *_: (os.write(1, saved), sys.exit()))\n"
        "print(sys.argv[1], 'up', flush=True); time.sleep(60)\n"
    )
    (daemon.directory / "worker.py").write_text(worker)
    run = f"{sys.executable} -S worker.py"
    job = daemon.submit(
        "sh", "-c", f"trap '' USR2; setsid {run} a & ({run} b &) ; wait",
        gpus=4, signal="USR2", estimate_s=10_000.0,
    )  # fmt: skip
    daemon.until(lambda: daemon.output(job).count("up") == 2)
    daemon.working(job)
    other = daemon.submit("true", estimate_s=1.0)
    daemon.until(lambda: other in daemon.history())
    assert sorted(daemon.output(job).splitlines()[2:4]) == ["a saved", "b saved"]


def test_36_its_gpus_are_given_away_after_it_is_gone(daemon: Lazerd) -> None:
    holds = (
        "import fcntl, os, signal, time\n"
        "for gpu in os.environ['CUDA_VISIBLE_DEVICES'].split(','):\n"
        "    file = open(f'gpu-{gpu}', 'a'); globals()[gpu] = file\n"
        "    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\n"
        "time.sleep(%s)"
    )
    stubborn = daemon.script(holds % 60, gpus=4, estimate_s=10_000.0, grace_s=1.0)
    daemon.until(lambda: "up" in daemon.output(stubborn))
    daemon.working(stubborn)
    other = daemon.script(holds % 0, gpus=4, estimate_s=1.0)
    leaving = daemon.until_state(stubborn, "leaving")
    assert leaving["decisions"][-1]["kind"] == "Preempted"
    assert daemon.rows()[other]["state"] == "pending"
    ended = daemon.until_state(other, "ended")
    assert ended["exit_code"] == 0, daemon.output(other)


def test_37_a_long_set_up_is_left_alone(daemon: Lazerd) -> None:
    """Nobody is ended for doing nothing with its GPUs: it may be downloading."""
    job = daemon.submit("sleep", "3", gpus=4, estimate_s=1.0, setup_s=0.5)
    ended = daemon.until_state(job, "ended")
    assert (ended["exit_code"], ended["preemptions"]) == (0, 0)


def test_a_cancelled_job_is_ended_whole_and_does_not_come_back(daemon: Lazerd) -> None:
    job = daemon.submit("sh", "-c", "(setsid sleep 60 &); echo up; sleep 60", gpus=4)
    daemon.until(lambda: daemon.output(job))
    daemon.client.ask("cancel", jobs=[job])
    ended = daemon.until_state(job, "ended")
    assert ended["cancelled"]
    assert daemon.process and daemon.left() == {daemon.process.pid}


def test_what_a_job_leaves_behind_goes_with_it(daemon: Lazerd) -> None:
    job = daemon.submit("sh", "-c", "(setsid sleep 60 &); sleep 0.2; exit 3")
    assert daemon.until_state(job, "ended")["exit_code"] == 3
    assert daemon.process and daemon.left() == {daemon.process.pid}


def test_a_job_that_was_killed_says_so(daemon: Lazerd) -> None:
    job = daemon.script("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert daemon.until_state(job, "ended")["exit_code"] == 128 + signal.SIGKILL
