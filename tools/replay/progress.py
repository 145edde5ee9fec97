"""A progress bar for each policy, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tools.replay.runs import Progress


@contextmanager
def watched(names: Sequence[str], jobs: int) -> Iterator[Progress | None]:
    """What to tell the progress to; None where nobody would see it, or rich is not installed."""
    if not sys.stderr.isatty():
        yield None
        return
    try:
        from rich import progress as bars
        from rich.console import Console
    except ImportError:
        yield None
        return
    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeElapsedColumn(),
    )
    with bars.Progress(*columns, console=Console(stderr=True)) as shown:
        tasks = [shown.add_task(name, total=jobs) for name in names]

        def note(ended: Sequence[int]) -> None:
            for task, count in zip(tasks, ended, strict=True):
                shown.update(task, completed=count)

        yield note
