"""The tables in docs/replay.md: what stands between two marks is made, the rest is written."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.replay.cells import EAGER
from tools.replay.errors import OptionError
from tools.replay.measures import Row

Rows = Mapping[str, Mapping[str, Row]]
"""By cell, then by policy."""
FAILED = "failed"
"""The key of a row of a run that did not come to its end: why."""
NO_RIVAL = ["-"] * 4


def put(path: Path, name: str, content: str) -> None:
    """Replace what stands between the marks of `name`. Raises OptionError if there are none."""
    text = path.read_text()
    marks = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not marks.search(text):
        raise OptionError(f"{path}: there is no place marked <!-- {name} -->")
    path.write_text(marks.sub(lambda found: found[1] + content + found[2], text))


def markdown(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table; all columns but the first to the right."""
    rules = ["---", *("--:" for _ in header[1:])]
    return "".join(f"| {' | '.join(line)} |\n" for line in (header, rules, *lines))


def summary(rows: Rows, loads: Mapping[str, str], best: str) -> str:
    """A line for each cell: `best`, and how it stands against the others."""
    header = ("cell", "load", f"{best}: mean / median / p99, h", "best eager", "mean by its",
              "median by its", "p99 by its", "best never futile", "mean by its", "futile : eager's",
              "barren : eager's", "preempted : eager's")  # fmt: skip
    lines = [_against(cell, loads[cell], each, best) for cell, each in rows.items()]
    return markdown(header, lines)


def _against(cell: str, load: str, rows: Mapping[str, Row], best: str) -> list[str]:
    ours, done = rows[best], {name: row for name, row in rows.items() if FAILED not in row}
    if FAILED in ours:
        return [cell, load, ours[FAILED], *NO_RIVAL, *NO_RIVAL[:5]]
    times = " / ".join(_hours(ours, key) for key in ("jct_mean_s", "jct_p50_s", "jct_p99_s"))
    eager = _first([row for name, row in done.items() if name.endswith("/eager")])
    safe = _first([row for name, row in done.items() if "lazer" not in name and not row["futile"]])
    return [
        cell, load, times,
        *([eager["policy"], *(_ratio(ours, eager, key) for key in ("mean", "p50", "p99"))]
          if eager else NO_RIVAL),
        *([safe["policy"], _ratio(ours, safe, "mean")] if safe else NO_RIVAL[:2]),
        *(f"{ours[key]:,} : {eager[key]:,}" if eager else f"{ours[key]:,}"
          for key in ("futile", "barren", "preemptions")),
    ]  # fmt: skip


def _hours(row: Row, key: str) -> str:
    return f"{row[key] / 3600:.2f}"


def _first(rows: Sequence[Row]) -> Row | None:
    """The one with the shortest mean."""
    return min(rows, key=lambda row: float(row["jct_mean_s"]), default=None)


def _ratio(ours: Row, theirs: Row, what: str) -> str:
    return f"{ours[f'jct_{what}_s'] / theirs[f'jct_{what}_s']:.3f}"


def details(rows: Rows) -> str:
    """All policies of all cells."""
    header = ("policy", "mean h", "median h", "p99 h", "wait h", "preempted", "futile", "barren",
              "futile %", "set-up %", "lost %")  # fmt: skip
    parts = ["<details><summary>All policies</summary>\n"]
    for cell, each in rows.items():
        lines = [_full(row) for row in each.values()]
        done = [row for row in each.values() if FAILED not in row]
        parts.append(f"\n{cell}: {_conditions(done[0]) if done else ''}\n\n")
        parts.append(markdown(header, lines))
    return "".join([*parts, "\n</details>\n"])


def _conditions(row: Row) -> str:
    loses = (
        "nothing" if row["checkpoint_s"] is None else f"work since the last {row['checkpoint_s']} s"
    )
    return (
        f"{row['trace']}, {row['jobs']:,} jobs, {row['gpus']} GPUs, set-up {row['setup']}, "
        f"estimates {row['estimate']}, a preemption loses {loses}"
    )


def _full(row: Row) -> list[str]:
    if FAILED in row:
        return [row["policy"], row[FAILED], *[""] * 9]
    hours = [_hours(row, f"{key}_s") for key in ("jct_mean", "jct_p50", "jct_p99", "wait_mean")]
    counts = [f"{row[key]:,}" for key in ("preemptions", "futile", "barren")]
    shares = [f"{100 * row[key] / row['used_gpu_s']:.2f}" for key in
              ("futile_gpu_s", "setup_gpu_s", "lost_gpu_s")]  # fmt: skip
    return [row["policy"], *hours, *counts, *shares]


def futile_shares(rows: Rows, loads: Mapping[str, str]) -> str:
    """For each cell of the sweep and each policy: futile ones of the preemptions, of GPU time."""
    header = ("cell", "load", *EAGER, "srsf, exempt just under the set-up", "las, the same")
    lines = []
    for cell, each in rows.items():
        shares = [_futile(row) for row in each.values()]
        lines.append([cell, loads[cell], *shares])
    return markdown(header, lines)


def _futile(row: Row) -> str:
    if FAILED in row:
        return "does not end"
    of_all = 100 * row["futile"] / max(1, row["preemptions"])
    return f"{of_all:.0f} %, {100 * row['futile_gpu_s'] / row['used_gpu_s']:.2f} %"
