"""Three nodes with peers over one source, below which is storage that can be told to fail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cachexfs.demo.faulty_storage import FaultyStorage
from tests.cluster_of_nodes import Node, nodes


@dataclass
class Cluster:
    """The nodes, and the storage below their source."""

    storage: FaultyStorage
    nodes: list[Node]

    def __post_init__(self) -> None:
        self.a, self.b, self.c = self.nodes

    def named(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    def others_than(self, *names: str) -> list[Node]:
        return [node for node in self.nodes if node.name not in names]

    def everywhere(self, path: str) -> list[Path]:
        return [node.mountpoint / path for node in self.nodes]

    def partner(self) -> Node:
        """Who has the copies of what `a` wrote."""
        (name,) = {name for file in self.a.ls() for name in file["replicas"]}
        return self.named(name)


@contextmanager
def three_nodes(base: Path, fsync: str, pfs_timeout: str = "0.5s") -> Iterator[Cluster]:
    """Mounted, with every peer started first; the storage is well again at the end."""
    backing, source = base / "backing", base / "source"
    backing.mkdir()
    source.mkdir()
    extra = f'[mount]\nfsync = "{fsync}"\npfs_timeout = "{pfs_timeout}"\n[ram]\nlimit = "256MiB"\n'
    with FaultyStorage(backing, source) as storage, nodes(base, "abc", source, extra) as made:
        for node in made:
            node.start_peer()
        for node in made:
            node.mount()
        yield Cluster(storage, made)
        storage.clear()
