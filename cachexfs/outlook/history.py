"""The past, from the records: checkpoints, how long saving took, what was forecast. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from cachexfs.durability.checkpoints import Checkpoint, Saved, checkpoints
from cachexfs.durability.score import WEEK_S, Score, scores
from cachexfs.measurements.record import Record

_SAME_MOMENT_S = 0.25
"""Between the end of a capture and the begin of the way of the same file."""

SMALL_BYTES = 1 << 20
"""What is smaller is no typical file where there are larger ones: pointers, metadata."""


def saved_files(records: Sequence[Record]) -> list[Saved]:
    """The files whose way was measured, with the begin of their capture where that was too."""
    captures: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        if record.phase == "capture" and record.state == "ended":
            captures.setdefault((record.job, record.size_bytes), []).append(record)
    made = []
    for record in records:
        if record.phase == "safe":
            begin_s = _begin(record, captures.get((record.job, record.size_bytes), []))
            ended_s = record.begin_s + record.elapsed_s if record.state == "ended" else None
            made.append(Saved(record.job, begin_s, record.begin_s, record.size_bytes, ended_s))
    return made


def history(records: Sequence[Record]) -> list[Checkpoint]:
    """The checkpoints that were measured, oldest first."""
    return checkpoints(saved_files(records))


def of_last_job(made: Sequence[Checkpoint]) -> list[Checkpoint]:
    """The checkpoints of the job that saved last."""
    return [one for one in made if one.job == made[-1].job] if made else []


def usual_save_s(made: Sequence[Checkpoint]) -> float | None:
    """How long the program of the last job is busy with a save, as a rule."""
    times = [one.save_s for one in of_last_job(made)]
    return max(median(times), 1e-3) if times else None


def sizes_of(records: Sequence[Record], checkpoint: Checkpoint) -> list[int]:
    """The sizes of a checkpoint's files, in the order in which they settled."""
    return [
        record.size_bytes
        for record in records
        if record.phase == "safe"
        and record.job == checkpoint.job
        and checkpoint.begin_s <= record.begin_s <= checkpoint.settled_s
    ]


def typical_size(records: Sequence[Record], phase: str, source: str = "") -> int:
    """The median size in a phase, of the files that are not small if there are any."""
    sizes = [
        record.size_bytes
        for record in records
        if record.phase == phase and source in ("", record.source)
    ]
    large = [size for size in sizes if size > SMALL_BYTES]
    return int(median(large or sizes or [1 << 30]))


def score_of_last_week(records: Sequence[Record], now_s: float) -> list[Score]:
    """How forecasts of the last seven days came true."""
    forecasts = [f for record in records if (f := record.forecast()) is not None]
    return scores(forecasts, now_s - WEEK_S)


def _begin(record: Record, captures: Sequence[Record]) -> float:
    """When the program began to write this file; when it settled, where that was not measured."""
    for capture in reversed(captures):
        if abs(capture.begin_s + capture.elapsed_s - record.begin_s) < _SAME_MOMENT_S:
            return capture.begin_s
    return record.begin_s
