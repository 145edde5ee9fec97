"""What the demo plays on: a directory, storage that can be made to fail, two nodes.

All of it goes when the demo ends, however it ends.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cachexfs.demo.faulty_storage import FaultyStorage
from cachexfs.demo.node import Node, ram_directory
from cachexfs.demo.process import Child
from cachexfs.demo.waiting import Waiting
from cachexfs.errors import CacheXError

STEADY = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MKL_CBWR": "COMPATIBLE",
}
"""One thread, and MKL's reproducible code path: then the same program adds in the same order."""


class Stage:
    """The pieces. Nothing runs yet; `close` ends whatever does by then."""

    def __init__(self, home: Path, waiting: Waiting) -> None:
        self.home = home
        self.waiting = waiting
        self.backing, self.shared = home / "shared-storage.disk", home / "shared-storage"
        for directory in (self.backing, self.shared):
            directory.mkdir()
        self.storage = FaultyStorage(self.backing, self.shared)
        secret = home / "secret"
        secret.touch(mode=0o600)
        secret.write_text(secrets.token_hex(32))
        secret.chmod(0o600)
        self.ram = ram_directory(home)
        self.a, self.b = (self._node(name, secret) for name in "ab")
        self.a.members = self.b.members = (self.a.member, self.b.member)
        self._programs: list[Child] = []

    def _node(self, name: str, secret: Path) -> Node:
        home = self.home / f"node-{name}"
        home.mkdir()
        state = self.ram / f"node-{name}" / "state"
        return Node(name, home, state, self.shared, self.waiting, secret=secret)

    def train(self, name: str, directory: Path, *arguments: str) -> Child:
        """Start the training program; it prints its losses into `NAME.losses`."""
        program = Child(
            "cachexfs.demo.training",
            [directory, *arguments],
            self.home / f"{name}.log",
            output=self.losses(name),
            environment=STEADY,
        )
        self._programs.append(program)
        return program

    def losses(self, name: str) -> Path:
        """Where a training program's losses go."""
        return self.home / f"{name}.losses"

    def close(self) -> None:
        """End every process and take every mount away."""
        for program in self._programs:
            program.end()
        with contextlib.suppress(CacheXError):
            self.storage.clear()  # who waits for it cannot be killed
        for node in (self.a, self.b):
            node.end()
            node.wipe()
        self.storage.stop()
        if self.ram != self.home:
            shutil.rmtree(self.ram, ignore_errors=True)


@contextlib.contextmanager
def staged(waiting: Waiting, *, keep: bool) -> Iterator[Stage]:
    """A stage in a directory of its own, which is removed at the end unless it is to be kept."""
    base = os.environ.get("TMPDIR", "/var/tmp")  # /tmp may be in RAM
    home = Path(tempfile.mkdtemp(prefix="cachexfs-demo-", dir=base)).resolve()
    try:
        stage = Stage(home, waiting)
        try:
            yield stage
        finally:
            stage.close()
    finally:
        if not keep:
            shutil.rmtree(home, ignore_errors=True)
