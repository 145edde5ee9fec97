"""GPUs by node: free, on their way out, kept for somebody; with undo for "what if it were gone?".

One pool is a cluster of one node. Of a node, `free` GPUs are seen empty, `leaving` ones are held
by jobs that were told to go, and `kept` ones, free or leaving, are promised to a job. What is left,
`free + leaving - kept`, can be promised. Of the free ones `owed` have to stay free for promises
that are due before enough others are gone; the rest can be taken now.

A gang that fits on a node gets one node, a larger one whole nodes and its rest on one more, so that
its traffic crosses as few nodes as possible (Tiresias, NSDI 2019, section 3.3, calls it
consolidation). The smallest hole that takes it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

Placement = tuple[tuple[int, int], ...]
"""(node, GPUs) of each node that a job holds GPUs of."""


class OverCommitted(Exception):
    """More GPUs of a node were taken or given back than there are. The cluster is unchanged."""


class Cluster:
    """How many GPUs of each node are free, leaving and kept."""

    def __init__(self, node_gpus: Sequence[int]) -> None:
        self.size = list(node_gpus)
        self.free = list(node_gpus)
        self.leaving = [0] * len(node_gpus)
        self.kept = [0] * len(node_gpus)
        self.owed = [0] * len(node_gpus)
        self.drained = [False] * len(node_gpus)
        self._undo: list[tuple[list[int], int, int]] | None = None

    @classmethod
    def pool(cls, gpus: int) -> Cluster:
        """All GPUs alike, wherever they are."""
        return cls([gpus])

    @classmethod
    def nodes(cls, count: int, gpus: int = 8) -> Cluster:
        """`count` nodes of `gpus` GPUs."""
        return cls([gpus] * count)

    @property
    def total(self) -> int:
        """GPUs of all nodes that take jobs."""
        return sum(n for n, out in zip(self.size, self.drained, strict=True) if not out)

    def spare_now(self) -> int:
        """GPUs that can be taken at once, over all nodes."""
        return sum(self._free_now(node) for node in range(len(self.size)))

    def spare_soon(self) -> int:
        """GPUs promised to nobody that are free or leaving."""
        return sum(self._free_soon(node) for node in range(len(self.size)))

    def fit_now(self, gpus: int) -> Placement | None:
        """Where a gang can start at once, or None."""
        return self._fit(gpus, [self._free_now(node) for node in range(len(self.size))])

    def fit_soon(self, gpus: int) -> Placement | None:
        """Where a gang can start once all that was told to go is gone, or None."""
        return self._fit(gpus, [self._free_soon(node) for node in range(len(self.size))])

    def fits_empty(self, gpus: int) -> bool:
        """Whether the gang would fit if nothing ran."""
        sizes = [0 if out else n for n, out in zip(self.size, self.drained, strict=True)]
        return self._fit(gpus, sizes) is not None

    def is_empty_for(self, placement: Placement) -> bool:
        """Whether all of these GPUs are free."""
        return all(self.free[node] >= n for node, n in placement)

    def take(self, placement: Placement) -> None:
        """A job starts here."""
        self._move(self.free, placement, -1)

    def give(self, placement: Placement) -> None:
        """A job ended here, its GPUs are empty."""
        self._move(self.free, placement, +1)

    def let_go(self, placement: Placement) -> None:
        """The job here was told to go."""
        self._move(self.leaving, placement, +1)

    def take_back(self, placement: Placement) -> None:
        """In a trial: the job here stays after all."""
        self._move(self.leaving, placement, -1)

    def gone(self, placement: Placement) -> None:
        """The job that was told to go is gone, its GPUs are empty."""
        self._move(self.leaving, placement, -1)
        self._move(self.free, placement, +1)

    def stuck(self, placement: Placement) -> None:
        """The job that was told to go does not: these GPUs are out of service."""
        self._move(self.leaving, placement, -1)
        self._move(self.size, placement, -1)

    def keep(self, placement: Placement) -> None:
        """Promise these GPUs, free or leaving, to somebody."""
        self._move(self.kept, placement, +1)

    def unkeep(self, placement: Placement) -> None:
        """The promise is kept, or no longer needed."""
        self._move(self.kept, placement, -1)

    def owe(self, owed: Mapping[int, int]) -> None:
        """By node, how many GPUs must stay free; the others owe none."""
        self.owed = [0] * len(self.size)
        for node, n in owed.items():
            self.owed[node] = n

    def drain(self, node: int) -> None:
        """The node takes no new job."""
        self.drained[node] = True

    def up(self, node: int, gpus: int) -> None:
        """The node offers `gpus` GPUs: it is new, or takes jobs again."""
        for column in (self.size, self.free, self.leaving, self.kept, self.owed):
            column.extend([0] * (node + 1 - len(column)))
        self.drained.extend([False] * (node + 1 - len(self.drained)))
        self.drained[node] = False
        self.free[node] += gpus - self.size[node]
        self.size[node] = gpus

    @contextmanager
    def trial(self) -> Iterator[None]:
        """What is changed inside is undone at the end."""
        if self._undo is not None:
            raise RuntimeError("a trial within a trial")
        self._undo = []
        try:
            yield
        finally:
            for column, node, before in reversed(self._undo):
                column[node] = before
            self._undo = None

    def faults(self) -> list[str]:
        """What is wrong with the numbers; empty when nothing is."""
        columns = zip(self.size, self.free, self.leaving, self.kept, strict=True)
        return [
            f"node {node}: size {size} free {free} leaving {leaving} kept {kept}"
            for node, (size, free, leaving, kept) in enumerate(columns)
            if min(free, leaving, kept) < 0 or free + leaving > size or kept > free + leaving
        ]

    def _free_soon(self, node: int) -> int:
        if self.drained[node]:
            return 0
        return self.free[node] + self.leaving[node] - self.kept[node]

    def _free_now(self, node: int) -> int:
        return max(0, min(self.free[node] - self.owed[node], self._free_soon(node)))

    def _fit(self, gpus: int, room: list[int]) -> Placement | None:
        widest = max(self.size)
        holes = sorted((n, node) for node, n in enumerate(room) if n > 0)
        whole, rest = divmod(gpus, widest)
        full = [(node, n) for n, node in holes if n == widest][:whole]
        if len(full) < whole:
            return None
        if rest == 0:
            return tuple(full)
        taken = {node for node, _ in full}
        for n, node in holes:
            if n >= rest and node not in taken:
                return (*full, (node, rest))
        return None

    def _move(self, column: list[int], placement: Placement, sign: int) -> None:
        for node, n in placement:
            if column[node] + sign * n < 0:
                raise OverCommitted(f"node {node}: {column[node]} {sign * n:+}")
        for node, n in placement:
            if self._undo is not None:
                self._undo.append((column, node, column[node]))
            column[node] += sign * n
