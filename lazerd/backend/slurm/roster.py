"""Nodes by number: the engine counts nodes, Slurm names them.

The numbers are kept in a file, so that a node that joins later changes nobody else's: what the
daemon remembers of placements stays true over a restart.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from lazerd.model.cluster import Placement


class Roster:
    """Names in order of their numbers; only ever appended to."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._names: list[str] = []
        if path is not None and path.exists():
            self._names = [line for line in path.read_text().split("\n") if line]
        self._numbers = {name: number for number, name in enumerate(self._names)}

    @property
    def names(self) -> Sequence[str]:
        """All nodes that ever were."""
        return self._names

    def enrol(self, names: Iterable[str]) -> None:
        """Give a number to each node that has none, and write it down before it is used."""
        new = [name for name in dict.fromkeys(names) if name not in self._numbers]
        if not new:
            return
        for name in new:
            self._numbers[name] = len(self._names)
            self._names.append(name)
        if self._path is not None:
            self._write(self._path)

    def number(self, name: str) -> int | None:
        """The number of a node; None for one that is not on the roster."""
        return self._numbers.get(name)

    def nodes_of(self, placement: Placement) -> tuple[str, ...]:
        """The names of the nodes of a placement."""
        return tuple(self._names[number] for number, _ in placement if number < len(self._names))

    def _write(self, path: Path) -> None:
        fresh = path.with_name(path.name + ".new")
        with fresh.open("w") as file:
            file.write("".join(f"{name}\n" for name in self._names))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
