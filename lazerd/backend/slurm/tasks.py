"""Job arrays: which tasks a record stands for. Pure.

Slurm keeps the tasks of an array that nobody has touched in one record, `0-5,9%2`: at most two run
at a time. A task that starts, or is changed, gets a record and a job number of its own. Its name is
`ARRAY_TASK` here as on Slurm's command lines, whatever its number.
"""

from __future__ import annotations

import re

from lazerd.backend.slurm.errors import BrokenAnswer

MOST = 4_000_000
"""The largest MaxArraySize that Slurm allows is 4,000,001 (slurm.conf)."""

_SPAN = re.compile(r"(\d+)(?:-(\d+))?(?::(\d+))?")


def tasks_of(text: str) -> tuple[int, ...]:
    """The tasks of `0-5,9%2`, `1-7:2`, `[3-4]`; the limit after `%` is `throttle_of`.

    Slurm cuts long lists short with `...` unless SLURM_BITSTR_LEN is 0, which our commands set;
    a list that is cut is a broken answer, because tasks would be taken for ended.
    """
    body = text.partition("%")[0].strip("[]")
    found: list[int] = []
    for span in body.split(","):
        match = _SPAN.fullmatch(span)
        if match is None:
            raise BrokenAnswer(f"{text!r} is no list of array tasks")
        first, last = int(match[1]), int(match[2] or match[1])
        if last - first > MOST:
            raise BrokenAnswer(f"{text!r} has more than {MOST} tasks")
        found.extend(range(first, last + 1, int(match[3] or 1)))
    return tuple(found)


def throttle_of(text: str) -> int:
    """How many tasks may run at a time; 0: as many as there are."""
    limit = text.partition("%")[2].strip("[]")
    return int(limit) if limit.isdigit() else 0
