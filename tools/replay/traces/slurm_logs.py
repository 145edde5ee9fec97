"""Helios and Acme as published: what Slurm (Helios, Seren) or the PAI scheduler (Kalos) logged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tools.replay.traces.record import TraceJob
from tools.replay.traces.table import Row, rows

_TIMES = ("submit_time", "start_time", "end_time")


def read_helios(path: Path) -> Iterator[TraceJob]:
    """S-Lab-System-Group/HeliosData, `cluster_log.csv`; jobs without GPUs are left out."""
    for row in rows(path, ("job_id", "user", "vc", "gpu_num", *_TIMES, "duration")):
        # `jobname` is in the file, though not in its description: it tells repeated jobs apart.
        yield from _job(row, row.text("jobname") or row.text("vc"))


def read_acme(path: Path) -> Iterator[TraceJob]:
    """InternLM/AcmeTrace, `trace_seren.csv` and `trace_kalos.csv`; jobs without GPUs left out."""
    for row in rows(path, ("job_id", "user", "gpu_num", "type", *_TIMES, "duration")):
        yield from _job(row, row.text("type"))


def _job(row: Row, name: str) -> Iterator[TraceJob]:
    """The job, unless it took no GPU or never ran."""
    gpus, submit_s, duration_s = row.count("gpu_num"), row.time("submit_time"), _ran_s(row)
    if submit_s is None:
        raise row.wrong("submit_time is empty")
    if gpus and duration_s:
        user, job_id = row.text("user"), row.text("job_id")
        yield TraceJob(job_id, submit_s, duration_s, gpus, user, name)


def _ran_s(row: Row) -> float:
    """End minus start: the column `duration` of trace_kalos.csv counts the time in queue too."""
    start_s, end_s = row.time("start_time"), row.time("end_time")
    if start_s is None or end_s is None:
        return 0.0
    if end_s < start_s:
        raise row.wrong("end_time is before start_time")
    return end_s - start_s
