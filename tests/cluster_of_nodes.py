"""Nodes for tests: real daemons of one machine, each with a state directory and a store of its own.

Every process is started and ended by its own pid; every mount and tmpfs is taken down by its path,
even when a test fails.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cachexfs import claims, mountstate
from cachexfs.client import SOCKET_NAME, Client
from cachexfs.errors import CacheXError

WAIT_S = 20.0

DATA_PATHS = {"passthrough": "", "portable": '[mount]\ndata_path = "portable"\n'}
"""Data path -> the configuration that leads to it where kernel and privileges allow both."""


def free_port() -> int:
    """A TCP port of the loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def eventually(condition: Callable[[], Any], what: str = "it", timeout_s: float = WAIT_S) -> Any:
    """The first true value of `condition`; fails the test when there is none in time."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen within {timeout_s} s")


def listed(directory: Path) -> list[str]:
    """What is in a source, in order, but for the claims that nodes with peers have there."""
    return sorted(name for name in os.listdir(directory) if name != claims.DIRECTORY)


def run(
    *arguments: str | Path, check: bool = True, **kwargs: Any
) -> subprocess.CompletedProcess[str]:
    """`cachexfs ARGUMENTS`, with what it printed."""
    command = [sys.executable, "-m", "cachexfs", *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, **kwargs
    )
    if check and done.returncode != 0:
        raise AssertionError(
            f"cachexfs {' '.join(map(str, arguments))}: {done.stderr or done.stdout}"
        )
    return done


@dataclass
class Node:
    """One node: configuration, mount, replica store. Nothing runs until it is started."""

    name: str
    home: Path
    source: Path
    port: int = field(default_factory=free_port)
    members: list[Node] = field(default_factory=list)
    secret: Path | None = None
    extra: str = ""
    adopting: str = ""
    """A line for the section [peer]."""
    peer_process: subprocess.Popen[bytes] | None = None

    @property
    def mountpoint(self) -> Path:
        """Where the source is seen through the mount."""
        return self.home / "mnt"

    @property
    def store(self) -> Path:
        """This node's replica store."""
        return self.home / "store"

    @property
    def state(self) -> Path:
        """The state directory of this node's mount."""
        return mountstate.directory_of(self.home / "state", str(self.mountpoint.resolve()))

    @property
    def log(self) -> str:
        """What the mount's daemon logged."""
        path = self.state / "daemon.log"
        return path.read_text() if path.exists() else ""

    @property
    def config(self) -> Path:
        """The configuration file, written anew."""
        lines = [
            f'[node]\nname = "{self.name}"\nstate_dir = "{self.home}/state"',
            f'[peer]\nlisten = "127.0.0.1:{self.port}"\nstore = "{self.store}"\n{self.adopting}',
            *(
                f'[[peers]]\nname = "{m.name}"\naddress = "127.0.0.1:{m.port}"'
                for m in (self, *self.members)
            ),
            self.extra if "[ram]" in self.extra else '[ram]\nlimit = "1GiB"\n' + self.extra,
        ]
        if not self.members:
            lines = [line for line in lines if not line.startswith(("[peer]", "[[peers]]"))]
        if self.secret:
            lines.append(f'[security]\nsecret_file = "{self.secret}"')
        path = self.home / "cachexfs.toml"
        path.write_text("\n".join(lines) + "\n")
        return path

    def start_peer(self, under: Sequence[str] = ()) -> None:
        """Start the replica store; `under` is the command that starts its command."""
        reader, writer = os.pipe()
        command = [*under, sys.executable, "-m", "cachexfs", "peer", "-c", str(self.config)]
        with (self.home / "peer.log").open("ab") as log:
            self.peer_process = subprocess.Popen(
                [*command, "-f", "--ready-fd", str(writer)],
                stdout=log, stderr=log, pass_fds=[writer],
            )  # fmt: skip
        os.close(writer)
        ready = os.read(reader, 16)
        os.close(reader)
        assert ready, (self.home / "peer.log").read_text()

    def stop_peer(self, how: int = signal.SIGTERM) -> None:
        """End the replica store."""
        if self.peer_process is not None:
            self.peer_process.send_signal(how)
            self.peer_process.wait(timeout=10)
            self.peer_process = None

    def mount(self) -> Path:
        """Mount; returns the mount point."""
        self.mountpoint.mkdir(exist_ok=True)
        done = run("mount", self.source, self.mountpoint, "-c", self.config, check=False)
        assert done.returncode == 0, done.stderr + self.log
        return self.mountpoint

    def umount(self, level: str = "durable", **kwargs: Any) -> None:
        """Unmount as a user does."""
        run("umount", self.mountpoint, "--for", level, **kwargs)

    def pid(self) -> int:
        """The mount's daemon."""
        return int(self.report()["pid"])

    def report(self) -> dict[str, Any]:
        """What `cachexfs status --json` says of the mount."""
        done = run("status", self.mountpoint, "--json", "-c", self.config)
        mounts: list[dict[str, Any]] = json.loads(done.stdout)["mounts"]
        return mounts[0]

    def ls(self, path: str | Path = "") -> list[dict[str, Any]]:
        """What `cachexfs ls --json` says of a path below the mount point."""
        files: list[dict[str, Any]] = json.loads(run("ls", self.mountpoint / path, "--json").stdout)
        return files

    def wait(self, level: str, path: str | Path = "", timeout_s: float = WAIT_S) -> None:
        """`cachexfs wait`."""
        run("wait", self.mountpoint / path, "--for", level, "--timeout", str(timeout_s))

    def kill_mount(self) -> None:
        """kill -9 of keeper and daemon; the dead mount is taken away, as a person would."""
        self.kill_daemon()
        self.detach()

    def kill_daemon(self) -> None:
        """kill -9 of the daemon, and first of the keeper that would start another one."""
        if daemon := self._holder():
            for pid in (*self._keepers(daemon), daemon):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def kill_only_daemon(self) -> None:
        """kill -9 of the daemon alone: its keeper starts another one."""
        if daemon := self._holder():
            with contextlib.suppress(ProcessLookupError):
                os.kill(daemon, signal.SIGKILL)

    def keeper(self) -> int:
        """The pid of the keeper."""
        (pid,) = self._keepers(self._holder())
        return pid

    def wait_for_another(self, daemon: int) -> int:
        """Wait until a daemon other than this one answers; its pid."""
        eventually(lambda: self._holder() not in (0, daemon) and self._answers(), "another daemon")
        return self._holder()

    def daemon(self) -> int:
        """The pid of the daemon, or of the last one; asked without the daemon's help."""
        return self._holder()

    def _answers(self) -> bool:
        try:
            client = Client(self.state / SOCKET_NAME)
            return bool(client.ask("report")["mounts"][0]["pid"] == self._holder())
        except CacheXError:
            return False

    def _keepers(self, daemon: int) -> list[int]:
        with contextlib.suppress(OSError):
            parent = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
            command = Path(f"/proc/{parent}/cmdline").read_bytes()
            return [parent] if b"cachexfs" in command else []
        return []

    def detach(self) -> None:
        """Take the mount away, whatever state it is in."""
        subprocess.run(["umount", "-l", self.mountpoint], capture_output=True, check=False)
        eventually(lambda: not os.path.ismount(self.mountpoint), "unmounting")
        eventually(lambda: not self._is_locked(), "the end of the daemon")

    def _is_locked(self) -> bool:
        import fcntl

        try:
            with (self.state / "lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return False
        return False

    def wipe(self) -> None:
        """Lose the RAM tier, the journal and the store, as a node that dies does."""
        subprocess.run(["umount", "-l", self.state / "ram"], capture_output=True, check=False)
        shutil.rmtree(self.home / "state", ignore_errors=True)
        shutil.rmtree(self.store, ignore_errors=True)

    def close(self) -> None:
        """End everything, whatever state it is in."""
        with contextlib.suppress(Exception):
            self.stop_peer(signal.SIGKILL)
        if os.path.ismount(self.mountpoint) or self._is_locked():
            self.kill_daemon()
            subprocess.run(["umount", "-l", self.mountpoint], capture_output=True, check=False)
            with contextlib.suppress(AssertionError):
                eventually(lambda: not self._is_locked(), timeout_s=5)
        self.wipe()

    def _holder(self) -> int:
        """The pid of the daemon, as it wrote it into its lock; 0 when it is not known."""
        with contextlib.suppress(OSError, ValueError):
            return int((self.state / "lock").read_text() or 0)
        return 0


@contextlib.contextmanager
def nodes(
    base: Path, names: str = "a", source: Path | None = None, extra: str = ""
) -> Iterator[list[Node]]:
    """Nodes that share a source and a secret. Each is closed at the end, whatever happened."""
    source = source or base / "source"
    source.mkdir(exist_ok=True)
    secret = base / "secret"
    secret.write_text(secrets.token_hex(32))
    secret.chmod(0o600)
    made = [Node(name, base / f"node-{name}", source, extra=extra) for name in names]
    for node in made:
        node.home.mkdir()
        node.members = [other for other in made if other is not node]
        node.secret = secret if len(made) > 1 else None
    try:
        yield made
    finally:
        for node in made:
            node.close()
