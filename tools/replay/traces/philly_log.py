"""Philly as published: msr-fiddle/philly-traces, `cluster_job_log`, a JSON list of jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.replay.errors import TraceError
from tools.replay.traces.record import TraceJob
from tools.replay.traces.table import epoch_s, opened

_UNKNOWN = {None, "", "None"}


def read_philly_log(path: Path) -> Iterator[TraceJob]:
    """One job for each entry that ran on GPUs and ended.

    Its duration is the time of all its attempts together, its size that of the largest. Attempts
    without a start or an end, and jobs without any that has both, are left out: the description of
    the trace calls them errors of logging, or still running.
    """
    for number, entry in enumerate(_entries(path), start=1):
        try:
            job = _job(entry)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            problem = f"entry {number} is not a job: {_reason(error)}"
            raise TraceError(path, None, problem) from error
        if job is not None:
            yield job


def _entries(path: Path) -> list[Any]:
    with opened(path) as text:
        try:
            entries = json.load(text)
        except json.JSONDecodeError as error:
            raise TraceError(path, error.lineno, f"it is not JSON: {error.msg}") from error
    if not isinstance(entries, list) or not entries:
        raise TraceError(path, 1, "it is not a list of jobs")
    return entries


def _job(entry: Any) -> TraceJob | None:
    attempts = [each for each in entry["attempts"] if _ended(each)]
    duration_s = sum(epoch_s(each["end_time"]) - epoch_s(each["start_time"]) for each in attempts)
    gpus = max((_gpus(each) for each in attempts), default=0)
    if not gpus or duration_s <= 0 or entry["submitted_time"] in _UNKNOWN:
        return None
    submit_s = epoch_s(entry["submitted_time"])
    return TraceJob(entry["jobid"], submit_s, duration_s, gpus, entry["user"], entry["vc"])


def _ended(attempt: Any) -> bool:
    return attempt["start_time"] not in _UNKNOWN and attempt["end_time"] not in _UNKNOWN


def _gpus(attempt: Any) -> int:
    return sum(len(server["gpus"]) for server in attempt["detail"])


def _reason(error: Exception) -> str:
    return f"it has no {error}" if isinstance(error, KeyError) else str(error)
