"""A real Slurm for tests: munged, slurmctld and several slurmd on this machine, in one directory.

GPUs are character devices made with mknod in that directory, with a major number for local use, so
that gres.conf can name them; nothing opens them. Everything listens on the loopback. Every process
is started and ended by its own pid, also when a test fails; what jobs leave behind is found by the
path of this slurm.conf in its environment.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster_of_nodes import free_port

SBIN = "/usr/sbin:/usr/local/sbin:/sbin"
LOCAL_MAJOR = 240
"""240 to 254 are for local and experimental use (Documentation/admin-guide/devices.txt)."""

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None

WAIT_S = 20.0
LUA = Path(__file__).parent.parent / "lazerd/backend/slurm/job_submit.lua"

CONF = """
ClusterName=lazertest
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={home}/run/munge.socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
StateSaveLocation={state}
SlurmdSpoolDir={home}/spool/%n
SlurmctldPidFile={home}/run/slurmctld.pid
SlurmdPidFile={home}/run/slurmd-%n.pid
SlurmctldLogFile={home}/log/slurmctld.log
SlurmdLogFile={home}/log/slurmd-%n.log
SlurmctldDebug=verbose
SlurmdDebug=verbose
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PriorityType=priority/basic
SchedulerType=sched/backfill
GresTypes=gpu
InactiveLimit=0
"""


def missing_programs() -> list[str]:
    """What of Slurm is not installed here."""
    path = f"{os.environ.get('PATH', '')}:{SBIN}"
    names = ("munged", "slurmctld", "slurmd", "scontrol", "sbatch", "squeue")
    return [name for name in names if shutil.which(name, path=path) is None]


def why_not_here() -> str:
    """Why there can be no test cluster; "" when there can."""
    if missing := missing_programs():
        return f"no Slurm here: {', '.join(missing)} (apt-get install slurmctld slurmd munge)"
    return "" if os.geteuid() == 0 else "a test cluster of Slurm needs root"


@dataclass
class SlurmCluster:
    """`nodes` nodes of `gpus` GPUs. `settings` replace or add lines of slurm.conf; `partitions` are
    lines of it without their nodes; `lua` holds jobs at submission in those that are `steered`."""

    home: Path
    nodes: int = 3
    gpus: int = 4
    settings: dict[str, str] = field(default_factory=dict)
    partitions: Sequence[str] = ("PartitionName=gpu Default=YES", "PartitionName=other")
    steered: Sequence[str] = ("gpu",)
    port: int = field(default_factory=free_port)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    state_dir: str = field(default_factory=lambda: tempfile.mkdtemp(prefix="slurm-", dir=MEMORY))
    """slurmctld writes it under its locks: on a disk that others sync, everybody would wait."""

    @property
    def names(self) -> list[str]:
        """The nodes."""
        return [f"n{number}" for number in range(1, self.nodes + 1)]

    @property
    def conf(self) -> Path:
        """slurm.conf."""
        return self.home / "slurm.conf"

    @property
    def environment(self) -> dict[str, str]:
        """For every command and daemon."""
        return {
            **os.environ,
            "SLURM_CONF": str(self.conf),
            "PATH": f"{os.environ.get('PATH', '')}:{SBIN}",
        }

    @property
    def log(self) -> str:
        """What slurmctld logged."""
        path = self.home / "log/slurmctld.log"
        return path.read_text(errors="replace") if path.exists() else ""

    # --- start and stop

    def start(self) -> None:
        """All daemons; returns when every node takes jobs."""
        self._lay_out()
        self._spawn(
            "munged",
            "munged", "--foreground", f"--socket={self.home}/run/munge.socket",
            f"--key-file={self.home}/munge/key", f"--pid-file={self.home}/munge/pid",
            f"--log-file={self.home}/munge/log", f"--seed-file={self.home}/munge/seed",
            "--num-threads=10",
        )  # fmt: skip
        self._eventually((self.home / "run/munge.socket").exists, "munged's socket")
        self.start_controller("-i", "-c")
        for name in self.names:
            self.start_node(name)
        self._eventually(self._all_idle, "all nodes idle")

    def start_controller(self, *options: str) -> None:
        """slurmctld, with the state that it left unless `options` say otherwise."""
        self._spawn("slurmctld", "slurmctld", "-D", *options)
        self._eventually(self.is_answering, "slurmctld's answer")

    def kill_controller(self) -> None:
        """kill -9: what it has not saved is lost."""
        self._end("slurmctld", signal.SIGKILL)

    def start_node(self, name: str) -> None:
        """One slurmd."""
        self._spawn(name, "slurmd", "-D", "-N", name)

    def stop_node(self, name: str, how: int = signal.SIGKILL) -> None:
        """One slurmd; its jobs run on."""
        self._end(name, how)

    def stop(self) -> None:
        """Jobs, daemons, devices; never raises for what is gone already."""
        if "slurmctld" in self.processes and self.is_answering():
            self.run("scancel", "--user=root", "--signal=KILL", "--full", check=False)
            self.run("scancel", "--user=root", check=False)
        for name in [*self.names, "slurmctld", "munged"]:
            self._end(name, signal.SIGTERM if name == "munged" else signal.SIGKILL)
        deadline = time.monotonic() + 5
        while (left := self.leftovers()) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        shutil.rmtree(self.state_dir, ignore_errors=True)
        for device in (self.home / "dev").glob("*"):
            device.unlink()

    def leftovers(self, of_jobs: bool = False) -> list[int]:
        """Processes of this cluster that are still there, but for its daemons; or those of jobs."""
        needle = f"SLURM_CONF={self.conf}".encode()
        daemons = {process.pid for process in self.processes.values()} | {os.getpid()}
        found = []
        for proc in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                variables = (proc / "environ").read_bytes().split(b"\0")
                if needle in variables and int(proc.name) not in daemons:
                    is_job = any(v.startswith(b"SLURM_JOB_ID=") for v in variables)
                    found += [int(proc.name)] if is_job or not of_jobs else []
        return found

    # --- commands

    def run(self, *command: str, check: bool = True, limit_s: float = 30.0) -> str:
        """What a command printed."""
        try:
            done = self._run(command, limit_s)
        except subprocess.TimeoutExpired as error:
            said = (error.stderr or b"").decode(errors="replace")
            raise AssertionError(f"{' '.join(command)}: no end in {limit_s:g} s: {said}") from None
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(command)}: {done.stderr or done.stdout}")
        return done.stdout

    def _run(self, command: Sequence[str], limit_s: float) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False,
            timeout=limit_s, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def sbatch(self, script: str, *options: str, gpus: int = 1, user: int | None = None) -> str:
        """Submit; the job's number. `script` goes on after `#!/bin/bash`. `user` is a uid."""
        path = self.home / "jobs" / f"{secrets.token_hex(4)}.sh"
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)
        gres = (f"--gres=gpu:{gpus}",) if gpus else ()
        become = () if user is None else (
            "setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"
        )  # fmt: skip
        output = f"--output={self.home}/jobs/%x.%j.out"
        options = (f"--chdir={self.home}/jobs", output, "--open-mode=append", *gres, *options)
        return self.run(*become, "sbatch", "--parsable", *options, str(path)).strip()

    def squeue(self) -> dict[str, tuple[str, str]]:
        """Job -> its state and its nodes, or why it waits."""
        lines = self.run(
            "squeue", "--noheader", "--states=all", "--array", "--format=%i|%T|%R"
        ).splitlines()
        rows = (line.split("|") for line in lines)
        return {job: (state, where) for job, state, where in rows}

    def show(self, job: str) -> dict[str, str]:
        """Fields of `scontrol -d show job` that hold no spaces."""
        text = self.run("scontrol", "--details", "--oneliner", "show", "job", job)
        return dict(re.findall(r"(\S+?)=(\S*)", text))

    def state(self, job: str) -> str:
        """Its state; "" when Slurm does not know it."""
        text = self.run("scontrol", "--oneliner", "show", "job", job, check=False)
        found = re.search(r"JobState=(\S+)", text)
        return found[1] if found else ""

    def output(self, job: str) -> str:
        """What a job has written."""
        return "".join(p.read_text() for p in sorted((self.home / "jobs").glob(f"*.{job}.out")))

    def is_answering(self) -> bool:
        """Whether slurmctld does."""
        try:
            return "UP" in self.run("scontrol", "ping", check=False, limit_s=5)
        except AssertionError:
            return False

    def clear(self) -> None:
        """No job left, every node open."""
        for user in ("root", "nobody"):
            self.run("scancel", f"--user={user}", check=False)
        for name in self.names:
            self.run("scontrol", "update", f"NodeName={name}", "State=RESUME", check=False)
        self._eventually(lambda: self._all_idle() and not self._active(), "an empty cluster")

    # ---

    def _active(self) -> bool:
        return bool(self.run("squeue", "--noheader", "--format=%i").strip())

    def _all_idle(self) -> bool:
        lines = self.run("sinfo", "--noheader", "--Node", "--format=%N|%T", check=False)
        states = dict(line.split("|") for line in lines.splitlines() if "|" in line)
        return len(states) == self.nodes and set(states.values()) == {"idle"}

    def _lay_out(self) -> None:
        for name in ("spool", "log", "dev", "run", "munge", "jobs"):
            (self.home / name).mkdir(parents=True, exist_ok=True)
        # munged wants a socket that everybody reaches, and a key that nobody else can change.
        for directory in (self.home, self.home / "run", *self.home.parents):
            if str(directory).startswith("/tmp/"):
                directory.chmod(directory.stat().st_mode | 0o711)
        (self.home / "jobs").chmod(0o1777)
        (self.home / "munge").chmod(0o700)
        key = self.home / "munge/key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        for number, name in enumerate(self.names):
            (self.home / "spool" / name).mkdir(exist_ok=True)
            for gpu in range(self.gpus):
                device = os.makedev(LOCAL_MAJOR, number * 16 + gpu)
                os.mknod(self.home / f"dev/{name}-gpu{gpu}", stat.S_IFCHR | 0o600, device)
        self.conf.write_text(self._slurm_conf())
        lines = [
            f"NodeName={name} Name=gpu File={self.home}/dev/{name}-gpu[0-{self.gpus - 1}]"
            if self.gpus > 1
            else f"NodeName={name} Name=gpu File={self.home}/dev/{name}-gpu0"
            for name in self.names
        ]
        (self.home / "gres.conf").write_text("\n".join(lines) + "\n")
        (self.home / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        table = ", ".join(f"{name} = true" for name in self.steered)
        lua = LUA.read_text().replace("{ gpu = true }", f"{{ {table} }}")
        (self.home / "job_submit.lua").write_text(lua)

    def _slurm_conf(self) -> str:
        text = CONF.format(
            host=socket.gethostname(), port=self.port, home=self.home, state=self.state_dir
        )
        settings = dict(line.split("=", 1) for line in text.split("\n") if line)
        settings |= {
            "KillWait": "2",
            "MinJobAge": "300",
            "SchedulerParameters": "bf_interval=1,sched_interval=1,batch_sched_delay=0",
        }
        if self.steered:
            settings["JobSubmitPlugins"] = "lua"
        settings |= self.settings
        lines = [f"{key}={value}" for key, value in settings.items()]
        for name in self.names:
            lines.append(
                f"NodeName={name} NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1"
                f" Port={free_port()} CPUs=64 RealMemory=4000 Gres=gpu:{self.gpus} State=UNKNOWN"
            )
        nodes = ",".join(self.names)
        lines += [f"{p} Nodes={nodes} MaxTime=INFINITE State=UP" for p in self.partitions]
        return "\n".join(lines) + "\n"

    def _spawn(self, name: str, *command: str) -> None:
        log = self.home / "log" / f"{name}.out"
        path = shutil.which(command[0], path=self.environment["PATH"])
        assert path is not None
        # A test run that is killed takes the daemons along. The kernel means the thread that starts
        # them: it has to be one that stays.
        with_us = ("setpriv", "--pdeathsig", "KILL")
        with log.open("ab") as file:
            self.processes[name] = subprocess.Popen(
                [*with_us, path, *command[1:]],
                env=self.environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                start_new_session=True,
            )  # fmt: skip

    def _end(self, name: str, how: int) -> None:
        process = self.processes.pop(name, None)
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=10)
        if name == "slurmctld":
            self._end_scripts()

    def _end_scripts(self) -> None:
        """slurmscriptd, slurmctld's child, ends when its parent does; wait for the port."""
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) != 0:
                    return
            time.sleep(0.02)

    def _eventually(self, condition: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            if condition():
                return
            for name, process in self.processes.items():
                if process.poll() is not None:
                    raise AssertionError(f"{name} ended: {self._last_words(name)}")
            time.sleep(0.05)
        raise AssertionError(f"no {what} within {WAIT_S:g} s: {self._last_words('slurmctld')}")

    def _last_words(self, name: str) -> str:
        logs = [self.home / f"log/{name}.log", self.home / f"log/slurmd-{name}.log",
                self.home / f"log/{name}.out"]  # fmt: skip
        return "\n".join(p.read_text(errors="replace")[-1500:] for p in logs if p.exists())


@contextlib.contextmanager
def slurm_cluster(home: Path | None = None, **kwargs: Any) -> Iterator[SlurmCluster]:
    """A cluster that is stopped at the end, whatever happens.

    Without `home` it has a directory of its own, which goes with it. Not pytest's: that is closed
    to other users again whenever somebody starts pytest, and jobs are submitted by other users.
    """
    own = Path(tempfile.mkdtemp(prefix="slurm-")) if home is None else None
    cluster = SlurmCluster(home or own, **kwargs)  # type: ignore[arg-type]
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        if own is not None:
            shutil.rmtree(own, ignore_errors=True)
