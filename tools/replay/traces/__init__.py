"""The formats of traces, by name; which one a file has is seen from its first line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from tools.replay.errors import TraceError
from tools.replay.traces.alibaba import read_alibaba_2020, read_alibaba_2023
from tools.replay.traces.philly_log import read_philly_log
from tools.replay.traces.record import Selection, TraceJob
from tools.replay.traces.simulators import (
    read_kalos,
    read_muri,
    read_philly_table,
    read_tiresias,
)
from tools.replay.traces.slurm_logs import read_acme, read_helios
from tools.replay.traces.table import opened

__all__ = ["FORMATS", "Selection", "TraceJob", "format_of", "read"]

FORMATS: dict[str, Callable[[Path], Iterator[TraceJob]]] = {
    "philly": read_philly_table,
    "philly-log": read_philly_log,
    "kalos": read_kalos,
    "muri": read_muri,
    "tiresias": read_tiresias,
    "helios": read_helios,
    "acme": read_acme,
    "alibaba-2020": read_alibaba_2020,
    "alibaba-2023": read_alibaba_2023,
}

# What the first line of a file holds; the first that fits wins.
_SIGNS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("timestamp", "num_gpus", "cluster"), "philly"),
    (("num_iteration", "gpu_workers"), "kalos"),
    (("model_name", "iteration_time"), "muri"),
    (("model_name", "iterations"), "tiresias"),
    (("gpu_num", "vc"), "helios"),
    (("gpu_num", "node_num"), "acme"),
    (("gpu_milli",), "alibaba-2023"),
)


def format_of(path: Path) -> str:
    """The name of the format of a file. Raises TraceError where no format fits."""
    with opened(path) as text:
        first = text.readline()
    if first.lstrip().startswith("["):
        return "philly-log"
    columns = {name.strip() for name in first.split(",")}
    for signs, name in _SIGNS:
        if columns.issuperset(signs):
            return name
    if path.name.startswith("pai_job_table"):
        return "alibaba-2020"
    known = ", ".join(FORMATS)
    raise TraceError(path, 1, f"no known format has these columns; name one of {known}")


def read(path: Path, name: str | None, selection: Selection) -> list[TraceJob]:
    """The selected jobs of a trace. Raises TraceError, also for no job or two of one name."""
    jobs = selection.of(FORMATS[name or format_of(path)](path))
    if not jobs:
        raise TraceError(path, None, "no job in it fits the selection")
    twice, times = Counter(job.id for job in jobs).most_common(1)[0]
    if times > 1:
        raise TraceError(path, None, f"{times} jobs in it are called {twice}")
    return jobs
