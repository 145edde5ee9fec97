"""One host of a cluster: what runs on it, what happens to it, how it looks from outside."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cachexfs import mountstate
from cachexfs.client import SOCKET_NAME, Client
from cachexfs.errors import UsageError
from tools.hosts import mounts, seclusion
from tools.hosts.errors import ClusterError
from tools.hosts.place import Place
from tools.hosts.sharedfs import SharedFileSystem, is_attached, must_answer, source_of
from tools.hosts.spec import SWITCH, Link, Spec, address, host_name, parse_rate, rack
from tools.hosts.system import module, run
from tools.hosts.wiring import Wiring

STARTS_S = 60.0
EXEC_S = 60.0
FREEZES_S = 2.0
"""A signal is heeded in milliseconds, except by who hangs in the kernel."""
_LOOK_EVERY_S = 0.005
_FROZEN = "T"  # "stopped" in proc_pid_stat(5)


class Host:
    """Nothing runs before `start`. Paths are good inside the host and outside."""

    def __init__(self, spec: Spec, number: int, wiring: Wiring, pfs: SharedFileSystem) -> None:
        self.number = number
        self.name = host_name(number)
        self.address = address("peers", number)
        self.rack = rack(number)
        self.home = spec.home_of_host(self.name)
        self.place = Place(
            self.name,
            spec.namespace(self.name),
            self.home,
            seclusion=spec.home / f"{self.name}.keeper",
            switch=spec.namespace(SWITCH),
        )
        self._spec = spec
        self._wiring = wiring
        self._pfs = pfs

    @property
    def mountpoint(self) -> Path:
        """The mount of CacheX-FS."""
        return self.home / "mnt"

    @property
    def source(self) -> Path:
        """The shared file system as this host has it, seen from outside.

        Inside, it is also at the one path that all hosts share, which is what is mounted.
        """
        return source_of(self.place)

    @property
    def store(self) -> Path:
        """Its NVMe directory: the replica store of its peer."""
        return self.home / "nvme"

    @property
    def state_dir(self) -> Path:
        """Its state directory, with the RAM tier."""
        return self.home / "state"

    @property
    def config(self) -> Path:
        """Its configuration; what is changed there counts from the next start on."""
        return self.home / "cachexfs.toml"

    # --- making and starting

    def make(self, config: str) -> None:
        """Its directories, namespaces and cables. Raises `ClusterError`."""
        self.home.mkdir()
        self.mountpoint.mkdir()
        self.config.write_text(config)
        self._wiring.plug(self.place, self.number)
        assert self.place.seclusion is not None
        seclusion.create(self.place.seclusion, self._spec.hosts, self.place.switch)

    def start(self, *, mount: bool = True) -> None:
        """Start what does not run: its peer, its shared file system, its mount.

        Raises `ClusterError`, for instance where the shared file system is blocked; the peer then
        runs. `mount` False is for just that.
        """
        self.start_peer()
        if mount:
            self.start_mount()

    def start_peer(self) -> None:
        """Serve the replica store; returns when it listens."""
        if not self._runs(b"peer"):
            self._cachexfs("peer", "-c", self.config)

    def start_mount(self) -> None:
        """Mount the shared file system, and CacheX-FS over it; returns when it answers."""
        if mounts.at(self.mountpoint):
            return
        if self.is_pfs_blocked:
            raise ClusterError(
                f"{self.name} cannot mount while its shared file system is blocked: "
                f"unblock-pfs {self.number}, or start --no-mount"
            )
        if not is_attached(self.place):
            self._pfs.attach(self.place)
        seclusion.show(self.place, self.source, self._spec.shared)
        self._cachexfs("mount", self._spec.shared, self.mountpoint, "-c", self.config)

    def _cachexfs(self, *arguments: str | Path) -> None:
        done = run(self.place.inside(module("cachexfs", *arguments)), STARTS_S)
        if done.returncode != 0:
            said = (done.stderr.strip() or "it said nothing").splitlines()[-1]
            raise ClusterError(f"{self.name}: {said.removeprefix('cachexfs: ')}")

    def _runs(self, word: bytes) -> bool:
        """Whether a process of it has this word and its configuration in the command line."""
        return any({word, os.fsencode(self.config)} <= words for words in self._command_lines())

    def _command_lines(self) -> list[set[bytes]]:
        found = []
        for pid in self.place.pids():
            try:
                found.append(set(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")))
            except OSError:
                continue
        return found

    # --- what happens to it

    def kill(self) -> None:
        """kill -9 of every process of it; its mounts are gone, RAM tier and NVMe directory stay."""
        self.place.end()

    def wipe(self) -> None:
        """Lose RAM tier, journal and replica store. Raises `UsageError` while anything runs."""
        if self.place.pids():
            raise UsageError(f"{self.name} is running: kill it before you wipe it")
        mounts.detach_all(mounts.below(self.home))
        if left := mounts.below(self.home):
            raise ClusterError(f"{left[0].path} is still mounted")
        for directory in (self.state_dir, self.store):
            shutil.rmtree(directory, ignore_errors=True)

    def stop(self) -> None:
        """Freeze every process of it (SIGSTOP); what hangs in the kernel freezes after it."""
        self.place.send(signal.SIGSTOP)
        self._wait_until_frozen(True)

    def cont(self) -> None:
        """Let them go on (SIGCONT)."""
        self.place.send(signal.SIGCONT)
        self._wait_until_frozen(False)

    def _wait_until_frozen(self, wanted: bool) -> None:
        deadline = time.monotonic() + FREEZES_S
        while self.is_frozen is not wanted and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY_S)

    def block_pfs(self) -> None:
        """The shared file system answers nothing on this host from now on."""
        self._pfs.block(self.place)

    def unblock_pfs(self) -> None:
        """It answers again; returns when it does. Raises `ClusterError`."""
        self._pfs.unblock(self.place)
        if is_attached(self.place):
            must_answer(self.place)

    def limit(self, rate: str | None, link: Link = "peers") -> None:
        """`100mbit` each way on a link, or None. Raises `UsageError`."""
        if link == "pfs" and self._spec.pfs != "gluster":
            raise UsageError("--link pfs: only with --pfs gluster is there such a link")
        self._wiring.limit(self.place, link, parse_rate(rate or "none"))

    # --- programs on it

    def exec(
        self,
        command: Sequence[str | Path],
        *,
        timeout_s: float = EXEC_S,
        check: bool = True,
        text: str | None = None,
        directory: Path = Path("/"),
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the host, with `text` as its input.

        Raises `TimedOut`, and with `check` `ClusterError` when it fails.
        """
        line = self.command(command, directory=directory, environment=environment)
        done = run(line, timeout_s, text=text)
        if check and done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()
            raise ClusterError(f"{self.name}: {' '.join(map(str, command))}: {said[-1]}")
        return done

    def popen(
        self,
        command: Sequence[str | Path],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a program on the host in the background; what it prints goes to `log`."""
        line = self.command(command, environment=environment)
        with log.open("ab") as output:
            return subprocess.Popen(
                line, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    def command(
        self,
        command: Sequence[str | Path],
        *,
        directory: Path = Path("/"),
        environment: Mapping[str, str] | None = None,
    ) -> list[str]:
        """The command line that runs a command on this host, with CACHEXFS_* set."""
        known = {
            "CACHEXFS_HOST": self.name,
            "CACHEXFS_MOUNT": str(self.mountpoint),
            "CACHEXFS_SOURCE": str(self._spec.shared),
            "CACHEXFS_CONFIG": str(self.config),
        }
        path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
        told = {"PATH": path, **known, **(environment or {})}
        return self.place.inside(command, environment=told, directory=directory)

    def cachexfs(self, *arguments: str | Path, **keywords: Any) -> subprocess.CompletedProcess[str]:
        """`cachexfs ARGUMENTS` on the host; keywords as for `exec`."""
        return self.exec(module("cachexfs", *arguments), **keywords)

    # --- looking at it

    @property
    def client(self) -> Client:
        """Asks the mount's daemon, without touching the mount."""
        state = mountstate.directory_of(self.state_dir, str(self.mountpoint))
        return Client(state / SOCKET_NAME, str(self.mountpoint))

    def report(self) -> dict[str, Any]:
        """What `cachexfs status --json` says of the mount. Raises `NotRunning`, `TimedOut`."""
        mount: dict[str, Any] = self.client.ask("report")["mounts"][0]
        return mount

    def ls(self, path: str = "") -> list[dict[str, Any]]:
        """What `cachexfs ls --json` says of a path below the mount. Raises `CacheXError`."""
        files: list[dict[str, Any]] = self.client.ask("ls", paths=[path])
        return files

    @property
    def is_pfs_blocked(self) -> bool:
        """Whether its shared file system is blocked."""
        return self._pfs.is_blocked(self.place)

    @property
    def is_frozen(self) -> bool:
        """Whether it runs, and all of it is stopped."""
        states = [_state_of(pid) for pid in self.place.pids()]
        return bool(states) and set(states) <= {_FROZEN, ""}

    @property
    def limits(self) -> dict[Link, int]:
        """The limits in bits a second, where there are any."""
        links: tuple[Link, ...] = ("peers", "pfs") if self._spec.pfs == "gluster" else ("peers",)
        found = {link: self._wiring.limit_of(self.place, link) for link in links}
        return {link: rate for link, rate in found.items() if rate is not None}

    @property
    def lost_to(self) -> list[str]:
        """The names of the hosts that it cannot reach."""
        return [host_name(number) for number in self._wiring.lost_to(self.place)]


def _state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
