"""Where benchmarks run: a directory on disk, a tmpfs, nodes; all of it goes at the end."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from cachexfs.demo.faulty_storage import FaultyStorage
from cachexfs.demo.mountpoints import is_mountpoint
from cachexfs.demo.node import Node, ram_directory
from cachexfs.demo.waiting import Waiting
from cachexfs.ram import tmpfs

RAM_SPARE_BYTES = 256 << 20


class Bench:
    """Directories and nodes below one directory on disk. `close` takes them all down."""

    def __init__(self, home: Path, waiting: Waiting) -> None:
        self.home = home
        self.waiting = waiting
        self.ram = ram_directory(home)
        self._tmpfs: list[Path] = []
        self._nodes: list[Node] = []
        self._storages: list[FaultyStorage] = []

    def directory(self, name: str) -> Path:
        """A directory on disk."""
        path = self.home / name
        path.mkdir()
        return path

    def in_shm(self, name: str) -> Path:
        """A directory in /dev/shm, as the system has mounted it."""
        path = Path("/dev/shm") / self.home.name / name
        path.mkdir(parents=True)
        return path

    def private_tmpfs(self, name: str, size_bytes: int) -> Path | None:
        """A tmpfs as the RAM tier's; None without root."""
        if os.geteuid() != 0:
            return None
        path = self.directory(name)
        tmpfs.mount(path, size_bytes, huge_pages=True)
        self._tmpfs.append(path)
        return path

    def blocked_storage(self) -> FaultyStorage:
        """Shared storage that can be made to fail."""
        backing, shared = self.directory("disk"), self.directory("storage")
        storage = FaultyStorage(backing, shared)
        self._storages.append(storage)
        storage.start()
        return storage

    def nodes(self, names: Iterable[str], source: Path, ram_bytes: int) -> list[Node]:
        """Nodes that know each other; nothing runs yet."""
        names, secret = list(names), None
        if len(names) > 1:
            secret = self.home / "secret"
            secret.touch(mode=0o600)
            secret.write_text(secrets.token_hex(32))
            secret.chmod(0o600)
        made = [self._node(name, source, secret, ram_bytes) for name in names]
        for node in made:
            node.members = tuple(each.member for each in made) if secret else ()
        return made

    def _node(self, name: str, source: Path, secret: Path | None, ram_bytes: int) -> Node:
        home = self.directory(f"node-{name}")
        state = self.ram / f"node-{name}" / "state"
        limit = ram_bytes + RAM_SPARE_BYTES
        node = Node(name, home, state, source, self.waiting, secret=secret, ram_bytes=limit)
        self._nodes.append(node)
        return node

    def close(self) -> None:
        """End every process and take every mount away."""
        for storage in self._storages:
            with contextlib.suppress(Exception):
                storage.clear()
        for node in self._nodes:
            node.end()
            node.wipe()
        for storage in self._storages:
            storage.stop()
        for path in self._tmpfs:
            if is_mountpoint(path):
                tmpfs.unmount(path)
        shutil.rmtree(Path("/dev/shm") / self.home.name, ignore_errors=True)


@contextlib.contextmanager
def bench(waiting: Waiting, base: Path) -> Iterator[Bench]:
    """A bench in a directory of its own below `base`."""
    home = Path(tempfile.mkdtemp(prefix="cachexfs-bench-", dir=base)).resolve()
    made = Bench(home, waiting)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(home, ignore_errors=True)
