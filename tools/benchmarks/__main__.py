"""The command line of the benchmarks."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from cachexfs.demo.waiting import interruptible
from cachexfs.errors import CacheXError
from cachexfs.units import format_size, parse_size
from tools.benchmarks import capture as capturing
from tools.benchmarks import flush as flushing
from tools.benchmarks import metadata as metering
from tools.benchmarks import replicate as replicating
from tools.benchmarks.bench import Bench, bench
from tools.benchmarks.costs import as_json as costs_as_json
from tools.benchmarks.costs import table as cost_table
from tools.benchmarks.figures import Series, as_json, table
from tools.benchmarks.writing import BLOCK_BYTES

F = TypeVar("F", bound=Callable[..., Any])
Conditions = dict[str, Any]
Measure = Callable[[Bench], list[Series]]
_DISK = os.environ.get("TMPDIR", "/var/tmp")


def blocks(text: str) -> int:
    """A size such as 256MiB, in bytes, whole blocks of them. Raises ValueError."""
    return max(BLOCK_BYTES, parse_size(text) // BLOCK_BYTES * BLOCK_BYTES)


def numbers(text: str) -> list[int]:
    """`1,4`. Raises ValueError."""
    found = [int(number) for number in text.split(",")]
    if min(found) < 1:
        raise ValueError(f"{min(found)} writers")
    return found


json_option = click.option(
    "--json", "as_text", flag_value=False, default=True, help="For programs."
)
directory_option = click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=_DISK,
    show_default=True,
    help="A directory on the disk to measure.",
)
rounds_option = click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True)
size_option = click.option(
    "--size",
    "size_bytes",
    type=blocks,
    metavar="SIZE",
    default="1GiB",
    show_default=True,
    help="Of the file, or of all files together.",
)


def shared_options(command: F) -> F:
    """What every benchmark of whole files takes."""
    for option in (json_option, directory_option, rounds_option, size_option):
        command = option(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def benchmarks() -> None:
    """How fast the mount is beside the plain thing, measured in turns on this machine."""


@benchmarks.command()
@shared_options
@click.option(
    "--streams",
    type=numbers,
    metavar="N,N",
    default="1,4",
    show_default=True,
    help="Numbers of files written at once.",
)
def capture(
    size_bytes: int, rounds: int, directory: Path, as_text: bool, streams: list[int]
) -> None:
    """Write blocks of 1 MiB into the mount and beside it, and read them back."""
    ways = {"write": capturing.measure_writes, "read back": capturing.measure_reads}
    measures: list[tuple[Conditions, Measure]] = [
        (
            {"benchmark": f"capture, {way}", "streams": number, "rounds": rounds},
            partial(measure, size_bytes=size_bytes, rounds=rounds, streams=number),
        )
        for way, measure in ways.items()
        for number in streams
    ]
    show(measures, directory, as_text=as_text)


@benchmarks.command()
@shared_options
@click.option("--side-by-side", is_flag=True, help="Flush to the shared storage meanwhile.")
def replicate(
    size_bytes: int, rounds: int, directory: Path, as_text: bool, side_by_side: bool
) -> None:
    """From close to `replicated`, beside a plain socket copy."""
    conditions = {"benchmark": "replicate", "side_by_side": side_by_side, "rounds": rounds}
    costs: dict[str, float] = {}
    measure = partial(
        replicating.measure,
        size_bytes=size_bytes,
        rounds=rounds,
        costs=costs,
        blocked=not side_by_side,
    )
    with_costs = {**conditions, "cpu_s_per_gb": costs}  # filled in by the measure
    show([(with_costs, measure)], directory, as_text=as_text)


@benchmarks.command()
@click.option("--files", type=click.IntRange(min=1), default=1000, show_default=True)
@rounds_option
@directory_option
@json_option
def metadata(files: int, rounds: int, directory: Path, as_text: bool) -> None:
    """Small operations, one by one."""
    conditions = {"benchmark": "metadata", "files": files, "rounds": rounds}
    with interruptible() as waiting, bench(waiting, directory) as made:
        costs = metering.measure(made, files, rounds)
    if as_text:
        click.echo("\n".join([title(conditions), *cost_table(costs), ""]))
    else:
        click.echo(json.dumps([costs_as_json(costs, **conditions)], indent=2))


@benchmarks.command()
@shared_options
def flush(size_bytes: int, rounds: int, directory: Path, as_text: bool) -> None:
    """From close to `durable`, beside cp and fsync."""
    measure = partial(flushing.measure, size_bytes=size_bytes, rounds=rounds)
    show([({"benchmark": "flush", "rounds": rounds}, measure)], directory, as_text=as_text)


def show(measures: list[tuple[Conditions, Measure]], directory: Path, *, as_text: bool) -> None:
    """Measure and print: text as soon as it is there, JSON as one list."""
    done = []
    for conditions, series in measured(measures, directory):
        done.append(as_json(series, **conditions))
        if as_text:
            click.echo("\n".join([heading(conditions, series), *table(series), ""]))
    if not as_text:
        click.echo(json.dumps(done, indent=2))


def measured(
    measures: list[tuple[Conditions, Measure]], directory: Path
) -> Iterator[tuple[Conditions, list[Series]]]:
    """Each on a bench of its own."""
    with interruptible() as waiting:
        for conditions, measure in measures:
            with bench(waiting, directory) as made:
                series = measure(made)
            yield conditions, series


def heading(conditions: Conditions, series: list[Series]) -> str:
    """What was measured."""
    return f"{title(conditions)}, {format_size(series[0].size_bytes)} in all"


def title(conditions: Conditions) -> str:
    """The conditions in words."""
    return ", ".join(f"{key.replace('_', ' ')} {_said(value)}" for key, value in conditions.items())


def _said(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key} {number:.2f}" for key, number in value.items())
    return str(value)


if __name__ == "__main__":
    try:
        benchmarks(prog_name="tools/bench")
    except CacheXError as error:
        click.echo(f"bench: {error}", err=True)
        sys.exit(error.exit_code)
