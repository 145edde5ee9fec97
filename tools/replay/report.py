"""Results as text, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tools.replay.case import Case
from tools.replay.driver import Task
from tools.replay.measures import KEYS, TIMED, Row


@dataclass(frozen=True)
class Column:
    """A column of the table for people."""

    title: str
    text: Callable[[Row], str]


def _hours(key: str) -> Callable[[Row], str]:
    return lambda row: f"{row[key] / 3600:,.2f}"


def _count(key: str) -> Callable[[Row], str]:
    return lambda row: f"{row[key]:,}"


def _share(key: str) -> Callable[[Row], str]:
    return lambda row: f"{100 * row[key] / row['used_gpu_s']:.2f}"


COLUMNS = (
    Column("policy", lambda row: str(row["policy"])),
    Column("mean h", _hours("jct_mean_s")),
    Column("median h", _hours("jct_p50_s")),
    Column("p99 h", _hours("jct_p99_s")),
    Column("wait h", _hours("wait_mean_s")),
    Column("preempted", _count("preemptions")),
    Column("futile", _count("futile")),
    Column("barren", _count("barren")),
    Column("futile %", _share("futile_gpu_s")),
    Column("set-up %", _share("setup_gpu_s")),
    Column("lost %", _share("lost_gpu_s")),
    Column("used %", lambda row: f"{100 * row['utilisation']:.1f}"),
)
LEGEND = (
    "mean, median, p99: completion time, finish minus submission; wait: its part without GPUs.\n"
    "futile, set-up, lost %: of the GPU time held; used %: GPU time held, of all there was.\n"
)


def heading(case: Case, tasks: Sequence[Task]) -> str:
    """The load and what is assumed, in words."""
    work_gpu_s = sum(task.duration_s * task.spec.gpus for task in tasks)
    setup_gpu_s = sum(task.setup_s * task.spec.gpus for task in tasks)
    span_s = max(1, tasks[-1].submit_s - tasks[0].submit_s)
    at_checkpoint = "nothing" if case.checkpoint_s is None else f"up to {case.checkpoint_s} s"
    setups = "known" if case.known_setups else "learned"
    place = f"nodes of {case.node_gpus}" if case.node_gpus else "one pool"
    return (
        f"{case.label()}: {len(tasks):,} jobs in {span_s / 86400:.1f} days on {case.gpus} GPUs "
        f"({place})\n"
        f"offered load {work_gpu_s / span_s / case.gpus:.2f} of the GPUs without set-ups, "
        f"{(work_gpu_s + setup_gpu_s) / span_s / case.gpus:.2f} with one for each job\n"
        f"set-up {case.setup} ({setups}), estimates {case.estimate}, "
        f"a preemption loses {at_checkpoint}, grace {case.grace_s} s, seed {case.seed}\n"
    )


def as_text(rows: Sequence[Row]) -> str:
    """A table, the policies below each other."""
    lines = [[column.title for column in COLUMNS]]
    lines += [[column.text(row) for column in COLUMNS] for row in rows]
    widths = [max(len(line[at]) for line in lines) for at in range(len(COLUMNS))]
    return "".join(_line(line, widths) for line in lines)


def _line(fields: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = zip(fields, widths, strict=True)
    cells = [first[0].ljust(first[1]), *(field.rjust(width) for field, width in rest)]
    return "  ".join(cells).rstrip() + "\n"


def as_csv(rows: Sequence[Row]) -> str:
    """All keys but the time that the replay took, so that the same seed gives the same bytes."""
    text = io.StringIO()
    keys = [key for key in KEYS if key != TIMED]
    table = csv.DictWriter(text, keys, extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return text.getvalue()


def as_json(rows: Sequence[Row]) -> str:
    """`results.json`: one object for each policy, all keys, in their order."""
    return json.dumps(list(rows), indent=2) + "\n"
