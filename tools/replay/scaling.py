"""`python -m tools.replay scaling`: the time for one event against the number of jobs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from tools.replay.case import SYNTHETIC, Case
from tools.replay.document import markdown, put
from tools.replay.errors import ReplayError
from tools.replay.measures import Row
from tools.replay.runs import Run, replay

SIZES = "8640,69120,250000,1000000"
# The synthetic trace offers about 350 GPUs of work: a load of 0.9, and with set-ups a little more.
GPUS, SETUP = 400, "const:300"
CPU = "cpu_s"
"""Time on the CPU, which other programs on the machine disturb less than the time on the wall."""


@click.command()
@click.option("--sizes", default=SIZES, show_default=True, metavar="N,N", help="Numbers of jobs.")
@click.option("--policies", default="fifo,srsf/eager,lazer", show_default=True, metavar="LIST")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True)
@click.option(
    "--document",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="Write the table into this page, too, between its marks.",
)
def scaling(sizes: str, policies: str, out: Path, document: Path | None) -> None:
    """Replay synthetic traces of several sizes, one after the other, and draw the time an event.

    What was measured before in the same directory is not measured again.
    """
    try:
        rows = _measured(_numbers(sizes), policies.split(","), out)
        _draw(rows, out / "time-per-event.png")
        if document is not None:
            put(document, "scaling", _table(rows))
    except ReplayError as error:
        click.echo(f"replay: {error}", err=True)
        sys.exit(error.exit_code)


def _numbers(sizes: str) -> list[int]:
    try:
        return [int(size) for size in sizes.split(",")]
    except ValueError:
        raise click.BadParameter(f"{sizes!r} is not a list of numbers") from None


def _measured(sizes: Sequence[int], policies: Sequence[str], out: Path) -> list[Row]:
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    for jobs in sizes:
        for policy in policies:
            path = out / f"{policy.replace('/', '-')}-{jobs}.json"
            if not path.exists():
                case = Case(f"{SYNTHETIC}{jobs}", GPUS, SETUP)
                result = replay(Run(case, policy))
                path.write_text(json.dumps({**result.row, CPU: result.outcome.cpu_s}))
            row: Row = json.loads(path.read_text())
            click.echo(
                f"{jobs:,} jobs, {policy}: {row[CPU]:.1f} s, {_event_us(row):.1f} us an event"
            )
            rows.append(row)
    return rows


def _event_us(row: Row) -> float:
    return 1e6 * float(row[CPU]) / int(row["events"])


def _table(rows: Sequence[Row]) -> str:
    header = ("policy", "jobs", "events", "CPU seconds", "CPU microseconds an event")
    lines = [
        [row["policy"], f"{row['jobs']:,}", f"{row['events']:,}", f"{row[CPU]:.1f}",
         f"{_event_us(row):.1f}"]
        for row in rows
    ]  # fmt: skip
    return markdown(header, lines)


def _draw(rows: Sequence[Row], path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib.pyplot import close, subplots

    from tools.replay.figures import DPI, PALETTE

    figure, axes = subplots(figsize=(7, 4), layout="constrained")
    for number, policy in enumerate(dict.fromkeys(row["policy"] for row in rows)):
        own = [row for row in rows if row["policy"] == policy]
        axes.plot([row["jobs"] for row in own], [_event_us(row) for row in own], "o-",
                  color=PALETTE[number % len(PALETTE)], label=policy)  # fmt: skip
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("jobs in the trace")
    axes.set_ylabel("CPU time for one event, engine and driver (µs)")
    axes.set_title(f"synthetic trace, {GPUS} GPUs, set-up {SETUP}, known durations", fontsize=9)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=DPI)
    close(figure)
