"""Plain tables and times, for terminals and for eyes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from cachexfs.units import format_duration

RIGHT = frozenset({"GPUS", "PREEMPTED", "FREE", "LEAVING", "KEPT", "EXIT", "TIME"})
"""Columns of numbers."""


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns as wide as they must be, two blanks between."""
    lines = [tuple(heads), *(tuple(map(str, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    adjust = [str.rjust if head in RIGHT else str.ljust for head in heads]
    return "\n".join(
        "  ".join(fit(cell, width) for fit, cell, width in zip(adjust, line, widths, strict=True))
        .rstrip()
        for line in lines
    )  # fmt: skip


def when(at_s: float | None) -> str:
    """Seconds since the epoch -> the local time; the date too, if it is not today's."""
    if at_s is None:
        return "-"
    moment, today = time.localtime(at_s), time.localtime()
    form = "%H:%M:%S" if moment[:3] == today[:3] else "%Y-%m-%d %H:%M:%S"
    return time.strftime(form, moment)


def gpu_time(seconds: float | None) -> str:
    """GPU-seconds -> `3m20s of GPU time`."""
    return f"{format_duration(seconds)} of GPU time"
