"""One node of the demo: its mount, its replica store, and how it dies."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from cachexfs import mountstate
from cachexfs.client import SOCKET_NAME, Client
from cachexfs.config import Config, Member, Mount, Peer, Ram, Security, Size, to_toml
from cachexfs.config import Node as NodeSection
from cachexfs.demo.mountpoints import detach, mounted
from cachexfs.demo.process import Daemon
from cachexfs.demo.waiting import Waiting
from cachexfs.errors import CacheXError

DETACH_S = 10.0


def free_port() -> int:
    """A TCP port of the loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Node:
    """A node: `home` holds its files, `state_dir` its RAM tier. Nothing runs before a start."""

    name: str
    home: Path
    state_dir: Path
    source: Path
    waiting: Waiting
    members: tuple[Member, ...] = ()
    secret: Path | None = None
    ram_bytes: int = 1 << 30
    data_path: Literal["auto", "portable"] = "auto"
    mount_daemon: Daemon | None = None
    peer_daemon: Daemon | None = None
    port: int = field(default_factory=free_port)

    @property
    def mountpoint(self) -> Path:
        """Where its programs see the shared storage."""
        return self.home / "mnt"

    @property
    def store(self) -> Path:
        """What its peer keeps for others."""
        return self.home / "store"

    @property
    def member(self) -> Member:
        """This node as the others know it."""
        return Member(name=self.name, address=f"127.0.0.1:{self.port}")

    @property
    def client(self) -> Client:
        """Asks the mount's daemon, without touching the mount."""
        state = mountstate.directory_of(self.state_dir, str(self.mountpoint))
        return Client(state / SOCKET_NAME, str(self.mountpoint))

    def start_mount(self) -> None:
        """Mount; returns when it answers."""
        self.mountpoint.mkdir(parents=True, exist_ok=True)
        arguments: list[str | Path] = [
            "mount",
            self.source,
            self.mountpoint,
            "-c",
            self._configure(),
        ]
        mountstate.prepare(mountstate.directory_of(self.state_dir, str(self.mountpoint)))
        self.mount_daemon = Daemon(arguments, self.home / "mount.log")
        self.mount_daemon.wait_ready(self.waiting)

    def start_peer(self) -> None:
        """Serve the replica store; returns when it listens."""
        self.home.mkdir(parents=True, exist_ok=True)
        self.peer_daemon = Daemon(["peer", "-c", self._configure()], self.home / "peer.log")
        self.peer_daemon.wait_ready(self.waiting)

    def report(self) -> dict[str, Any]:
        """What `cachexfs status --json` says of the mount."""
        mount: dict[str, Any] = self.client.ask("report")["mounts"][0]
        return mount

    def ls(self, path: str = "") -> list[dict[str, Any]]:
        """What `cachexfs ls --json` says of a path below the mount point; empty: none such."""
        with contextlib.suppress(CacheXError):
            files: list[dict[str, Any]] = self.client.ask("ls", paths=[path])
            return files
        return []

    def send(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to all that runs on this node, without waiting for it."""
        for daemon in self._running():
            daemon.send(number)

    def end(self) -> None:
        """Kill all that runs on this node, and take its mount away."""
        for daemon in self._running():
            daemon.end()
        self.mount_daemon = self.peer_daemon = None
        self._detach(self.mountpoint)

    def wipe(self) -> None:
        """Delete its RAM tier and its replica store, as a node that is lost takes them along."""
        self._detach(self.state_dir)
        shutil.rmtree(self.state_dir, ignore_errors=True)
        shutil.rmtree(self.store, ignore_errors=True)

    def _running(self) -> list[Daemon]:
        return [daemon for daemon in (self.mount_daemon, self.peer_daemon) if daemon]

    def _detach(self, directory: Path) -> None:
        """Unmount what is mounted there and below."""
        for mount in reversed(mounted()):
            if mount.path.is_relative_to(directory):
                with contextlib.suppress(Exception):
                    detach(mount.path).wait(DETACH_S)

    def _configure(self) -> Path:
        config = Config(
            node=NodeSection(name=self.name, state_dir=str(self.state_dir)),
            mount=Mount(data_path=self.data_path),
            ram=Ram(limit=Size(self.ram_bytes)),
            peer=Peer(store=str(self.store), listen=self.member.address) if self.secret else None,
            peers=self.members,
            security=Security(secret_file=str(self.secret) if self.secret else None),
        )
        path = self.home / "cachexfs.toml"
        path.write_text(to_toml(config))
        return path


def ram_directory(home: Path) -> Path:
    """Where a state directory can be: anywhere for root, on an existing tmpfs otherwise."""
    return home if os.geteuid() == 0 else Path("/dev/shm") / home.name
