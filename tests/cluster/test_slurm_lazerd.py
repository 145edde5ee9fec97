"""lazerd itself, in a process of its own, on a real Slurm: what its users see, and kill -9."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.slurm_cluster import SlurmCluster, slurm_cluster, why_not_here
from tools.experiments.slurm40.run import Lazerd, run_way
from tools.experiments.slurm40.ways import WAYS
from tools.experiments.slurm40.workload import workload

pytestmark = [
    pytest.mark.skipif(bool(why_not_here()), reason=why_not_here() or "Slurm is here"),
    pytest.mark.root,
]

WAIT_S = 20.0


class Place:
    """A cluster, its lazerd, and the command lazer."""

    def __init__(self, cluster: SlurmCluster, lazerd: Lazerd) -> None:
        self.cluster, self.lazerd = cluster, lazerd

    def lazer(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", "from lazerd.cli import main; main()", *arguments],
            env={**os.environ, "LAZER_SOCKET": str(self.lazerd.socket)},
            capture_output=True, text=True, check=False, timeout=20,
        )  # fmt: skip

    def queue(self) -> dict[str, dict[str, Any]]:
        done = self.lazer("queue", "--json")
        assert done.returncode == 0, done.stderr
        rows = json.loads(done.stdout)
        return {row["job"]: row for row in (rows["jobs"] if isinstance(rows, dict) else rows)}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    partitions = ("PartitionName=low Default=YES", "PartitionName=high")
    with slurm_cluster(nodes=2, gpus=2, partitions=partitions, steered=("low", "high")) as cluster:
        lazerd = Lazerd(tmp_path / "lazerd", cluster.conf)
        lazerd.start()
        try:
            yield Place(cluster, lazerd)
        finally:
            lazerd.stop()


def eventually(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.1)
    raise AssertionError(f"not within {WAIT_S:g} s: {what}")


def test_23_a_job_in_set_up_stays_and_one_that_works_makes_room(place: Place) -> None:
    cluster = place.cluster
    long = [
        cluster.sbatch("sleep 300", "--comment=lazer estimate=300 setup=1 grace=2", gpus=2)
        for _ in range(2)
    ]
    for job in long:
        eventually(lambda job=job: cluster.state(job) == "RUNNING", "the long jobs run")
    short = cluster.sbatch("sleep 1", "--comment=lazer estimate=1 setup=1", gpus=2)
    eventually(lambda: short in place.queue(), "the short one is in line")
    time.sleep(2)
    assert place.queue()[short]["state"] == "pending", "both are in set-up"
    told = place.lazer("explain", short)
    assert told.returncode == 0 and "set-up" in told.stdout.lower(), told.stdout + told.stderr
    assert place.lazer("working", long[0]).returncode == 0
    eventually(lambda: cluster.state(short) == "COMPLETED", "the short one has run")
    assert cluster.show(long[0])["Restarts"] == "1"
    assert cluster.show(long[1])["Restarts"] == "0"
    eventually(lambda: cluster.state(long[0]) == "RUNNING", "the victim runs again")


def test_lazerd_killed_finds_its_jobs_and_its_users_cancel_them(place: Place) -> None:
    cluster = place.cluster
    running, waiting = cluster.sbatch("sleep 300", gpus=2), cluster.sbatch("sleep 300", "--hold")
    eventually(lambda: cluster.state(running) == "RUNNING", "it runs")
    place.lazerd.stop(signal.SIGKILL)
    later = cluster.sbatch("sleep 300", gpus=1)
    time.sleep(1)
    assert cluster.state(later) == "PENDING", "nothing starts while lazerd is away"
    place.lazerd.start()
    eventually(lambda: cluster.state(later) == "RUNNING", "the new one runs")
    rows = place.queue()
    assert rows[running]["state"] == "setup" and rows[waiting]["state"] == "held"
    status = place.lazer("status")
    assert "kill_wait" in status.stdout.lower().replace(" ", "_") + status.stdout, status.stdout
    assert place.lazer("cancel", running, waiting).returncode == 0
    for job in (running, waiting):
        eventually(lambda job=job: cluster.state(job) == "CANCELLED", "it is cancelled")
    refused = place.lazer("submit", "--gpus", "1", "--", "true")
    assert refused.returncode != 0 and "sbatch" in refused.stderr, refused.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_forty_jobs_lazerd_killed_three_times_slurmctld_restarted_once(tmp_path: Path) -> None:
    made = run_way(WAYS["lazer"], workload(), tmp_path)
    assert (made.ended, made.futile, made.doubled) == (40, 0, 0)
