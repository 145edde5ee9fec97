"""Which files are one checkpoint: those of a job that were saved close together. Pure.

Nobody says which files belong together, so the gaps tell: a job that is saving closes files in
quick succession, and then trains for much longer. A gap of more than `GAP_S` between the end of one
save and the begin of the next separates two checkpoints. A job that saves more often than
that has its checkpoints taken for one; what is said of files still holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median_high

import msgspec

GAP_S = 5.0
"""Longer than the pause of a writer between two shards, shorter than any useful interval."""


class Saved(msgspec.Struct, frozen=True):
    """One file of a job. Times since the epoch; `safe_s` None while it is not safe."""

    job: str
    begin_s: float
    settled_s: float
    size_bytes: int
    safe_s: float | None = None


class Checkpoint(msgspec.Struct, frozen=True):
    """Files that were saved together. `safe_s`: when the last of them was safe; None: not yet."""

    job: str
    files: int
    size_bytes: int
    begin_s: float
    settled_s: float
    safe_s: float | None

    @property
    def save_s(self) -> float:
        """How long the program was saving."""
        return self.settled_s - self.begin_s


def checkpoints(files: Iterable[Saved], gap_s: float = GAP_S) -> list[Checkpoint]:
    """The checkpoints of every job, by time."""
    open_: dict[str, list[Saved]] = {}
    made: list[Checkpoint] = []
    for file in sorted(files, key=lambda file: (file.begin_s, file.settled_s)):
        group = open_.setdefault(file.job, [])
        if group and file.begin_s - max(one.settled_s for one in group) > gap_s:
            made.append(_made(group))
            group.clear()
        group.append(file)
    made += [_made(group) for group in open_.values() if group]
    return sorted(made, key=lambda checkpoint: checkpoint.begin_s)


def usual_interval_s(made: Sequence[Checkpoint]) -> float | None:
    """The median time between the begins of two checkpoints of the job that saved last."""
    if not made:
        return None
    begins = [one.begin_s for one in made if one.job == made[-1].job]
    gaps = [later - sooner for sooner, later in pairwise(begins)]
    return median_high(gaps) if gaps else None


def _made(group: Sequence[Saved]) -> Checkpoint:
    safe = [file.safe_s for file in group]
    return Checkpoint(
        group[0].job,
        len(group),
        sum(file.size_bytes for file in group),
        min(file.begin_s for file in group),
        max(file.settled_s for file in group),
        None if None in safe else max(moment for moment in safe if moment is not None),
    )
