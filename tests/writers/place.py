"""A place in the mount for one writer, and whether every tier holds what it wrote there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.cluster_of_nodes import Node, eventually, run


def tree(directory: Path) -> dict[str, bytes | str | None]:
    """Relative path -> content, target of a symbolic link, or None for a directory."""
    found: dict[str, bytes | str | None] = {}
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_dir():
            found[name] = None
        else:
            found[name] = path.read_bytes()
    return found


@dataclass(frozen=True)
class Place:
    """A directory in the mount, and the same on a plain file system."""

    name: str
    a: Node
    b: Node
    scratch: Path

    @property
    def path(self) -> Path:
        """In the mount."""
        return self.a.mountpoint / self.name

    @property
    def plain(self) -> Path:
        """On a plain file system."""
        return self.scratch / "plain"

    def both(self, write: Callable[[Path], object]) -> None:
        """Let a writer do its work in the mount and on the plain file system; same result."""
        write(self.path)
        write(self.plain)
        assert tree(self.path) == tree(self.plain)

    def check(self) -> None:
        """The mount, the source and the peer hold the same, byte by byte."""
        expected = tree(self.path)
        assert expected
        self.a.wait("durable", self.name)
        assert tree(self.path) == expected
        eventually(
            lambda: tree(self.a.source / self.name) == expected, "agreement of the source", 5
        )
        for path in (self.path, *self.path.rglob("*")):
            there = self.a.source / path.relative_to(self.a.mountpoint)
            assert there.lstat().st_mode == path.lstat().st_mode, path
            assert path.is_dir() or there.lstat().st_mtime_ns == path.lstat().st_mtime_ns, path
        eventually(self._all_replicated, "the way to the peer", 10)
        eventually(lambda: self._at_peer() == expected, "agreement of the peer", 10)

    def _all_replicated(self) -> bool:
        return all(file["replicas"] == ["b"] for file in self.a.ls(self.name))

    def _at_peer(self) -> dict[str, bytes | str | None]:
        target = self.scratch / "recovered"
        shutil.rmtree(target, ignore_errors=True)
        run("recover", "--to", target, "--from", f"127.0.0.1:{self.b.port}", "--path", self.name,
            "-c", self.a.config)  # fmt: skip
        return tree(target / self.name)
