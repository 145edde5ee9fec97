"""kill -9 of lazerd, anywhere: it comes back to the same state, and to its jobs."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lazerd.conduct.clock import Clock
from lazerd.engine import Engine
from lazerd.errors import LazerError
from lazerd.memory.restore import Restored, restore
from lazerd.memory.snapshot import fingerprint
from lazerd.memory.store import FILE, Store
from lazerd.policy.names import Information, policy_named
from tests.lazerd_at_work import Lazerd, lazerd

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))]

WORKS = """
import fcntl, os, signal, sys, time
from pathlib import Path
from lazerd.client import Client
me, steps = os.environ["LAZER_JOB_ID"], int(sys.argv[1])
held = [open(f"gpu-{n}", "a") for n in os.environ["CUDA_VISIBLE_DEVICES"].split(",")]
try:
    for file in held:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    print("TWICE", flush=True); sys.exit(99)
saved = Path(f"saved-{me}")
step = int(saved.read_text()) if saved.exists() else 0
print("start", step, flush=True)
def go(*_):
    saved.write_text(str(step)); print("saved", step, flush=True); os._exit(0)
signal.signal(signal.SIGTERM, go)
time.sleep(0.2)
for _ in range(200):
    try:
        Client(Path(os.environ["LAZER_SOCKET"])).ask("working", job=me); break
    except Exception:
        time.sleep(0.05)
while step < steps:
    step += 1; time.sleep(0.05)
print("end", step, flush=True)
sys.exit(int(me) % 5)
"""


def portrait(engine: Engine) -> dict[str, object]:
    """All that decides what an engine does next."""
    cluster = engine.floor.cluster
    return {
        "now": engine.now_s,
        "cluster": (cluster.size, cluster.free, cluster.leaving, cluster.kept, cluster.drained),
        "jobs": {
            job_id: {name: getattr(job, name) for name in job.__slots__}
            for job_id, job in engine.floor.jobs.items()
        },
    }


def restored(directory: Path, policy: str) -> Restored:
    store = Store(directory)
    try:
        chosen = policy_named(policy, Information.GIVEN)
        return restore(store, chosen, fingerprint(chosen, "given"), Clock().now_s())
    finally:
        store.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_killed_again_and_again(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    (tmp_path / "works.py").write_text(WORKS)
    answered: dict[str, int] = {}
    kills = 0
    with lazerd(tmp_path, policy="srsf/nosetup") as daemon:
        for number in range(10):
            steps = dice.choice([2, 5, 25])
            gpus = dice.choice([1, 1, 2, 4])
            with contextlib.suppress(LazerError):
                job = daemon.submit(
                    sys.executable,
                    "works.py",
                    str(steps),
                    gpus=gpus,
                    estimate_s=float(steps),
                    grace_s=5.0,
                )
                answered[job] = steps
            time.sleep(dice.uniform(0.0, 0.4))
            if number % 2:
                daemon.kill()
                kills += 1
                time.sleep(dice.choice([0.0, 0.3, 1.0]))
                daemon.start()
        daemon.until(lambda: not daemon.rows(), 90.0)
        history = daemon.history()
        daemon.kill()
        restored(daemon.state, "srsf/nosetup").engine.validate()
    print(f"seed {seed}: {kills} kills, {len(answered)} jobs, {len(history)} in the history")
    assert set(answered) <= set(history)
    for job, past in history.items():
        said = (tmp_path / f"{job}.out").read_text()
        assert "TWICE" not in said, (job, said)
        assert past["exit_code"] == int(job) % 5, (job, past, said)
        assert said.count("end") == 1, (job, said)
        assert past["futile_preemptions"] == 0
        lines = said.splitlines()
        for before, after in itertools.pairwise(lines):
            if after.startswith("start"):  # it goes on where it was, and was told to go before
                assert before == after.replace("start", "saved"), (job, said)


def test_the_engine_comes_back_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "works.py").write_text(WORKS)
    with lazerd(tmp_path, policy="srsf/nosetup") as daemon:
        long = daemon.submit("sleep", "60", gpus=4, estimate_s=1000.0, grace_s=1.0)
        daemon.until_state(long, "setup")
        daemon.working(long)
        for number in range(5):
            daemon.submit("sleep", "60", gpus=1 + number % 3, estimate_s=10.0 + number)
        daemon.until(lambda: sum(bool(row["where"]) for row in daemon.rows().values()) > 1)
        before = daemon.rows()
        daemon.kill()
        first, second = (
            restored(daemon.state, "srsf/nosetup"),
            restored(daemon.state, "srsf/nosetup"),
        )
        assert first.replayed > 5
        first.engine.validate()
        assert portrait(first.engine) == portrait(second.engine)
        daemon.start()
        assert daemon.stop() == 0  # in peace: what comes back now is a snapshot, not a replay
        third = restored(daemon.state, "srsf/nosetup")
        assert third.replayed == 0
        ours, theirs = portrait(first.engine), portrait(third.engine)
        assert ours["cluster"] == theirs["cluster"]
        assert ours["jobs"] == theirs["jobs"]
        daemon.start()
        after = daemon.rows()
        for job, row in before.items():
            same = ("state", "gpus", "preemptions")
            assert [row[key] for key in same] == [after[job][key] for key in same]


def test_another_policy_goes_on_from_the_records(tmp_path: Path) -> None:
    with lazerd(tmp_path, policy="srsf/nosetup") as daemon:
        running = daemon.submit("sleep", "60", gpus=3, estimate_s=100.0)
        daemon.until_state(running, "setup")
        daemon.working(running)
        held = daemon.submit("sleep", "60", gpus=4, estimate_s=10_000.0)
        daemon.client.ask("hold", jobs=[held])
        waiting = daemon.submit("sleep", "60", gpus=4, estimate_s=10_000.0)
        daemon.kill()
        path = tmp_path / "lazer.toml"
        path.write_text(path.read_text().replace("srsf/nosetup", "fifo"))
        daemon.start()
        states = {job: row["state"] for job, row in daemon.rows().items()}
        assert states == {running: "working", held: "held", waiting: "pending"}
        daemon.client.ask("cancel", jobs=[running])
        daemon.until_state(waiting, "setup")
        assert daemon.client.ask("status")["policy"] == "fifo"


def test_jobs_that_ended_meanwhile(tmp_path: Path) -> None:
    with lazerd(tmp_path) as daemon:
        jobs = [daemon.submit("sh", "-c", f"sleep 0.5; exit {code}") for code in (0, 3)]
        for job in jobs:
            daemon.until(lambda job=job: daemon.explain(job)["where"])
        daemon.kill()
        time.sleep(1.0)
        daemon.start()
        codes = [daemon.until_state(job, "ended")["exit_code"] for job in jobs]
        assert codes == [0, 3]


def test_killed_during_a_departure(tmp_path: Path) -> None:
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, lambda *_: print('told', flush=True));"
        "print('up', flush=True)\nfor _ in range(600): time.sleep(0.1)"
    )
    with lazerd(tmp_path, policy="srsf/nosetup") as daemon:
        job = daemon.script(stubborn, gpus=4, estimate_s=1000.0, grace_s=3.0)
        daemon.until(lambda: "up" in daemon.output(job))
        daemon.working(job)
        began = time.monotonic()
        other = daemon.submit("true", gpus=1, estimate_s=1.0)
        daemon.until(lambda: "told" in daemon.output(job))
        daemon.kill()
        daemon.start()
        daemon.until(lambda: other in daemon.history())
        assert 2.5 < time.monotonic() - began < 8.0
        assert daemon.output(job).count("told") == 1
        assert daemon.explain(job)["preemptions"] == 1


def test_after_a_reboot_jobs_are_pending_again(tmp_path: Path) -> None:
    with lazerd(tmp_path) as daemon:
        first = daemon.submit("sleep", "60", gpus=4)
        daemon.until_state(first, "setup")
        daemon.working(first)
        waiting = daemon.submit("sleep", "60", gpus=4)
        daemon.kill()
        for pid in daemon.left():  # what a reboot does: no process is left, and no /run
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(daemon.state / "jobs")
        with contextlib.closing(sqlite3.connect(daemon.state / FILE)) as db, db:
            db.execute("UPDATE meta SET value = 'another' WHERE key = 'boot'")
        daemon.start()
        found = daemon.until_state(first, "setup")
        assert (found["attempt"], found["exit_code"]) == (2, None)
        assert daemon.rows()[waiting]["state"] == "pending"


# --- the store ------------------------------------------------------------------------------------


def test_a_damaged_store_is_said_and_left_as_it_is(tmp_path: Path) -> None:
    daemon = Lazerd(tmp_path)
    daemon.state.mkdir()
    path = daemon.state / FILE
    path.write_bytes(b"this is no database" * 1000)
    code, said = daemon.refuses()
    assert code == 1
    assert said.splitlines()[-1].startswith(f"lazerd: the store {path} is damaged (file is not a")
    assert "--set-aside-store" in said
    assert path.read_bytes().startswith(b"this is no database")
    daemon.options.append("--set-aside-store")
    try:
        daemon.start()
        assert daemon.rows() == {}
        (aside,) = daemon.state.glob("lazer.db.2*")
        assert aside.read_bytes().startswith(b"this is no database")
    finally:
        daemon.clear()


def test_jobs_of_a_store_that_was_set_aside_keep_their_gpus(tmp_path: Path) -> None:
    with lazerd(tmp_path) as daemon:
        job = daemon.submit("sleep", "60", gpus=3)
        daemon.until(lambda: daemon.explain(job)["where"])
        daemon.kill()
        daemon.options.append("--set-aside-store")
        daemon.start()
        assert daemon.rows() == {}
        (node,) = daemon.client.ask("nodes")
        assert node["gpus"] == 1
        problems = daemon.client.ask("status")["problems"]
        assert {problem["code"] for problem in problems} == {"GpuStuck"}
        assert daemon.submit("true") == str(int(job) + 1)


def test_a_page_that_was_torn_is_found(tmp_path: Path) -> None:
    with lazerd(tmp_path) as daemon:
        for _ in range(30):
            daemon.submit("true")
        daemon.until(lambda: not daemon.rows())
        daemon.stop()
        with contextlib.closing(sqlite3.connect(daemon.state / FILE)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        path = daemon.state / FILE
        whole = bytearray(path.read_bytes())
        assert len(whole) > 5 * 4096
        whole[4096 : 4 * 4096] = os.urandom(3 * 4096)
        path.write_bytes(whole)
        code, said = daemon.refuses()
        assert code == 1 and "is damaged" in said


@pytest.mark.root
def test_a_full_store_refuses_and_loses_nothing(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "lazer", state], check=True)
    try:
        with lazerd(tmp_path) as daemon:
            running = daemon.submit("sleep", "3", gpus=1)
            daemon.until_state(running, "setup")
            waiting = daemon.submit("true", gpus=4)
            with contextlib.suppress(OSError), (state / "ballast").open("wb", 0) as ballast:
                while True:
                    ballast.write(b"x" * 4096)
            refused = ""
            for _ in range(50):  # what room the store has of its own is used up first
                try:
                    daemon.submit("sh", "-c", "true " + "x" * 4000, gpus=4)
                except LazerError as error:
                    refused = str(error)
                    break
            assert refused == (
                f"there is no room for the store {state / FILE}: free some; nothing in it is lost"
            )
            kept = set(daemon.rows())
            assert {running, waiting} <= kept
            (state / "ballast").unlink()
            daemon.until(lambda: not daemon.rows(), 60.0)
            assert kept <= set(daemon.history())
            daemon.stop()
    finally:
        subprocess.run(["umount", "-l", state], check=True)
