"""Traces as simulators pass them on: Philly as a table, Kalos, Muri, Tiresias."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tools.replay.traces.record import TraceJob
from tools.replay.traces.table import Row, rows

KALOS_ITERATION_S = 0.5  # column iteration_computing_time, the same in all rows
MURI_PER_S = 1000.0  # its times are milliseconds


def read_philly_table(path: Path) -> Iterator[TraceJob]:
    """siasosp23/artifacts, `sia-simulator/traces/philly.csv`; not sorted by time."""
    needed = ("timestamp", "duration", "num_gpus", "cluster")
    for row in rows(path, needed):
        submit_s = row.time("timestamp")
        if submit_s is None:
            raise row.wrong("timestamp is empty")
        cluster = row.text("cluster")
        job = _job(row, submit_s, row.seconds("duration"), row.count("num_gpus"), cluster)
        yield from job


def read_kalos(path: Path) -> Iterator[TraceJob]:
    """hyunnnchoi/AcmeTrace, `data/converted_trace`; GPUs = workers times GPUs of each."""
    needed = ("job_id", "arrival_time", "num_iteration", "gpu_workers", "gpu_per_worker")
    for row in rows(path, needed):
        duration_s = row.count("num_iteration") * KALOS_ITERATION_S
        gpus = row.count("gpu_workers") * row.count("gpu_per_worker")
        yield from _job(row, row.seconds("arrival_time"), duration_s, gpus)


def read_muri(path: Path) -> Iterator[TraceJob]:
    """pkusys/Muri, `simulator/trace-data`; in milliseconds."""
    yield from _by_iterations(path, MURI_PER_S)


def read_tiresias(path: Path) -> Iterator[TraceJob]:
    """SymbioticLab/Tiresias, `simulator/60_job.csv`; in seconds."""
    yield from _by_iterations(path, 1.0)


def _by_iterations(path: Path, per_s: float) -> Iterator[TraceJob]:
    needed = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration")
    for row in rows(path, needed):
        submit_s, duration_s = row.seconds("submit_time"), row.seconds("duration")
        gpus, model = row.count("num_gpu"), row.text("model_name")
        for job in _job(row, submit_s / per_s, duration_s / per_s, gpus, name=model):
            # Muri has priorities, drawn at random; Tiresias has none.
            yield replace(job, priority=row.count("priority")) if row.text("priority") else job


def _job(
    row: Row, submit_s: float, duration_s: float, gpus: int, user: str = "", name: str = ""
) -> Iterator[TraceJob]:
    """The job, unless it took no GPU or no time. Without a `job_id`, the line is its name."""
    if gpus and duration_s:
        yield TraceJob(row.text("job_id") or str(row.line), submit_s, duration_s, gpus, user, name)
