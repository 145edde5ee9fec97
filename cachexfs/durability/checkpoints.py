"""Which files are one checkpoint: those of a job that were saved close together. Pure.

Nobody says which files belong together, so the gaps tell: a job that is saving closes files in
quick succession, and then trains for much longer. So a gap between the end of one save and the
begin of the next separates two checkpoints: the longest of `GAPS_S` under which the job is not
found to be saving for more than `SAVING_AT_MOST` of its time, or the first where there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median_high

import msgspec

GAPS_S = (5.0, 1.0, 0.2)
"""The first is longer than the pauses of a writer between two shards as a rule, and shorter than
the interval of a job that is no test."""

SAVING_AT_MOST = 0.5
"""A job that saves for longer than it computes is rather one whose saves were taken for one."""


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


def checkpoints(files: Iterable[Saved]) -> list[Checkpoint]:
    """The checkpoints of every job, by time."""
    by_job: dict[str, list[Saved]] = {}
    for file in sorted(files, key=lambda file: (file.begin_s, file.settled_s)):
        by_job.setdefault(file.job, []).append(file)
    made = [one for of_job in by_job.values() for one in _of_job(of_job)]
    return sorted(made, key=lambda checkpoint: checkpoint.begin_s)


def _of_job(files: Sequence[Saved]) -> list[Checkpoint]:
    for gap_s in GAPS_S:
        made = _split(files, gap_s)
        span_s = made[-1].settled_s - made[0].begin_s
        if sum(one.save_s for one in made) <= SAVING_AT_MOST * span_s:
            return made
    return _split(files, GAPS_S[0])


def _split(files: Sequence[Saved], gap_s: float) -> list[Checkpoint]:
    """Checkpoints with more than `gap_s` between them, of files in the order of their begins."""
    made: list[Checkpoint] = []
    group: list[Saved] = []
    ended_s = 0.0
    for file in files:
        if group and file.begin_s - ended_s > gap_s:
            made.append(_made(group))
            group = []
        ended_s = max(ended_s, file.settled_s) if group else file.settled_s
        group.append(file)
    return [*made, _made(group)] if group else made


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
