"""One way, from an empty cluster to the last job's end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.slurm_cluster import SlurmCluster, slurm_cluster
from tools.experiments.slurm40.account import Account, Run, account, doubled, runs_of
from tools.experiments.slurm40.ways import Way
from tools.experiments.slurm40.workload import Job

ROOT = Path(__file__).parents[3]
JOB = Path(__file__).with_name("job.py")
LIMIT_S = 420.0

KILLS_S = (12.0, 30.0, 50.0)
"""When lazerd is killed; it is started again a second later."""

RESTART_S = 40.0
"""When slurmctld is restarted."""

CRED_EXPIRE_S = 2
"""A requeued job may not start again before its credential has expired (120 s by default): short,
so that Slurm's own ways are not slow for this reason alone. lazerd does not wait for it."""


@dataclass
class Lazerd:
    """The daemon, in a process of its own."""

    home: Path
    conf: Path
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0

    @property
    def socket(self) -> Path:
        """Where it listens."""
        return self.home / "control.sock"

    def start(self) -> None:
        """Returns when it answers."""
        self.home.mkdir(exist_ok=True)
        config = self.home / "lazer.toml"
        config.write_text(CONFIG.format(home=self.home, conf=self.conf))
        reader, writer = os.pipe()
        command = [sys.executable, "-m", "lazerd", "-c", str(config), "--verbose"]
        with (self.home / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--ready-fd", str(writer)],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[writer],
            )  # fmt: skip
        os.close(writer)
        ready = os.read(reader, 16)
        os.close(reader)
        self.starts += 1
        if not ready:
            raise RuntimeError(f"lazerd did not start: {(self.home / 'log').read_text()[-2000:]}")

    def stop(self, how: int = signal.SIGTERM) -> None:
        """End it by its pid."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(timeout=15)
            self.process = None


CONFIG = """
backend = "slurm"
[daemon]
state_dir = "{home}"
run_dir = "{home}"
[policy]
name = "srsf/lazer"
information = "given"
[checkpoints]
cachexfs = false
[slurm]
partitions = ["low", "high"]
options = {{ conf = "{conf}", poll_s = 0.25 }}
"""


@dataclass
class Trouble:
    """Kills and restarts that are still to come."""

    cluster: SlurmCluster
    daemon: Lazerd
    kills_s: list[float] = field(default_factory=lambda: list(KILLS_S))
    restarts_s: list[float] = field(default_factory=lambda: [RESTART_S])
    revive_s: float | None = None
    log: list[str] = field(default_factory=list)

    def make(self, at_s: float) -> None:
        """What is due."""
        if self.revive_s is not None and at_s >= self.revive_s:
            self.daemon.start()
            self.revive_s = None
        if self.kills_s and at_s >= self.kills_s[0]:
            self.kills_s.pop(0)
            self.daemon.stop(signal.SIGKILL)
            self.revive_s = at_s + 1.0
            self.log.append(f"{at_s:.1f} s: lazerd killed")
        if self.restarts_s and at_s >= self.restarts_s[0]:
            self.restarts_s.pop(0)
            self.cluster.stop_node("slurmctld", signal.SIGTERM)
            self.cluster.start_controller()
            self.log.append(f"{at_s:.1f} s: slurmctld restarted")


def run_way(way: Way, jobs: list[Job], out: Path) -> Account:
    """Submit, wait for the last end, and sum up; logs are left in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    settings = {"KillWait": "4", **way.settings}
    settings["AuthInfo"] = f"socket={out}/slurm/run/munge.socket,cred_expire={CRED_EXPIRE_S}"
    steered = ("low", "high") if way.has_lazer else ()
    with (
        slurm_cluster(
            out / "slurm", settings=settings, partitions=way.partitions, steered=steered
        ) as cluster,
        _daemon(way, cluster, out) as daemon,
    ):
        trouble = Trouble(cluster, daemon) if daemon else None
        submitted_s = _submit_all(cluster, way, jobs, out, trouble)
        last = _wait(cluster, trouble)
        (out / "slurmctld.log").write_text(cluster.log)
    runs = {job.number: _runs(out, job) for job in jobs}
    made = account(way.name, jobs, submitted_s, runs)
    document = {
        **made.row(),
        "unfinished": last,
        "doubled_where": doubled(runs),
        "trouble": trouble.log if trouble else [],
        "lazerd_starts": daemon.starts if daemon else 0,
    }
    (out / "account.json").write_text(json.dumps(document, indent=2) + "\n")
    return made


@contextlib.contextmanager
def _daemon(way: Way, cluster: SlurmCluster, out: Path) -> Iterator[Lazerd | None]:
    if not way.has_lazer:
        yield None
        return
    daemon = Lazerd(out / "lazerd", cluster.conf)
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.stop()


def _submit_all(
    cluster: SlurmCluster, way: Way, jobs: list[Job], out: Path, trouble: Trouble | None
) -> dict[int, float]:
    began_s = time.time()
    submitted_s = {}
    for job in jobs:
        while (at_s := time.time() - began_s) < job.submit_s:
            if trouble:
                trouble.make(at_s)
            time.sleep(0.05)
        cluster.sbatch(
            _script(way, job, out), f"--partition={job.partition}", f"--comment={job.comment}",
            f"--nodes={job.nodes}", f"--ntasks={job.nodes}", f"--job-name=j{job.number}",
            gpus=job.gpus,
        )  # fmt: skip
        submitted_s[job.number] = time.time()
    if trouble:
        trouble.kills_s = [at_s + (began_s - time.time()) for at_s in trouble.kills_s]
        trouble.restarts_s = [at_s + (began_s - time.time()) for at_s in trouble.restarts_s]
        if trouble.revive_s is not None:
            trouble.revive_s += began_s - time.time()
    return submitted_s


def _script(way: Way, job: Job, out: Path) -> str:
    """As a careful user writes it: the trainer is the script's process, or srun starts it."""
    run = "srun" if job.nodes > 1 else "exec"
    socket = f"export LAZER_SOCKET={out}/lazerd/control.sock\n" if way.has_lazer else ""
    return (
        f"{socket}export PYTHONPATH={ROOT}\n"
        f"{run} {sys.executable} {JOB} {job.setup_s} {job.work_s}"
        f" {out}/saved.{job.number} {out}/log.{job.number}"
    )


def _wait(cluster: SlurmCluster, trouble: Trouble | None) -> list[str]:
    """Until nothing is left in line or running; what was left when the time ran out."""
    began_s = time.time()
    while time.time() - began_s < LIMIT_S:
        if trouble:
            trouble.make(time.time() - began_s)
        left = cluster.run("squeue", "--noheader", "--format=%i|%T|%r", check=False).split()
        if not left and not (trouble and trouble.revive_s):
            return []
        time.sleep(0.2)
    return left


def _runs(out: Path, job: Job) -> list[Run]:
    path = out / f"log.{job.number}"
    return runs_of(path.read_text().splitlines()) if path.exists() else []
