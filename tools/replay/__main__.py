"""The command line of the replay tool."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from tools.replay.case import SYNTHETIC, Case
from tools.replay.errors import OptionError, ReplayError
from tools.replay.estimates import ESTIMATE_FORMS
from tools.replay.progress import watched
from tools.replay.recording import again as give_again
from tools.replay.report import LEGEND, as_csv, as_json, as_text, heading
from tools.replay.runs import Result, Run, replay_all
from tools.replay.scaling import scaling
from tools.replay.setups import SETUP_FORMS
from tools.replay.tables import tables
from tools.replay.traces import FORMATS

DEFAULT_POLICIES = "fifo,srtf/eager,srsf/eager,las/eager,lazer"


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--trace", metavar="FILE", help=f"A trace, plain or gzipped, or {SYNTHETIC}JOBS.")
@click.option("--format", type=click.Choice(list(FORMATS)), help="Default: seen from the file.")
@click.option("--gpus", type=click.IntRange(min=1), help="GPUs of the cluster.")
@click.option(
    "--node-gpus", type=click.IntRange(min=0), default=0, help="GPUs a node; 0: one pool."
)
@click.option("--policies", default=DEFAULT_POLICIES, show_default=True, metavar="LIST")
@click.option("--setup", default="const:1200", show_default=True, metavar="MODEL", help=SETUP_FORMS)
@click.option(
    "--estimate", default="oracle", show_default=True, metavar="MODE", help=ESTIMATE_FORMS
)
@click.option(
    "--known-setups", is_flag=True, help="Tell the engine each job's set-up; else it learns them."
)
@click.option(
    "--checkpoint",
    "checkpoint_s",
    type=click.IntRange(min=1),
    metavar="S",
    help="Seconds of work between checkpoints; without it a preemption loses no work.",
)
@click.option(
    "--grace",
    "grace_s",
    type=click.IntRange(min=0),
    default=0,
    metavar="S",
    help="Seconds from a preemption to the release of the GPUs.",
)
@click.option(
    "--compress",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    metavar="X",
    help="Jobs come so many times as fast.",
)
@click.option(
    "--min-gpus", type=click.IntRange(min=1), default=1, metavar="G", help="Leave smaller jobs out."
)
@click.option("--since", metavar="TIME", help="A date, or seconds as the trace counts them.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="The first N jobs only.")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where results.json, results.csv, table.txt and the figures go.",
)
@click.option(
    "--jobs",
    "processes",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Policies to replay at a time.",
)
@click.option("--validate", is_flag=True, help="Check the engine's invariants at every instant.")
@click.option(
    "--log",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write an event log of the one policy; `again FILE` replays it.",
)
@click.option("--figures/--no-figures", default=True, show_default=True)
@click.pass_context
def replay(context: click.Context, /, **options: Any) -> None:
    """Replay a trace of jobs under one policy after the other.

    A policy is an order and a variant: fifo, sjf, srtf/eager, srsf/exempt:300, las/nosetup,
    gittins/lazer; `lazer` alone is the best order for the information that there is.
    """
    if context.invoked_subcommand is None:
        try:
            _replay(**options)
        except ReplayError as error:
            _fail(error)


def _replay(
    *, policies: str, out: Path | None, processes: int, validate: bool, log: Path | None,
    figures: bool, trace: str | None, gpus: int | None, **conditions: Any,
) -> None:  # fmt: skip
    if trace is None or gpus is None or out is None:
        raise OptionError("--trace, --gpus and --out are needed; --help tells more")
    case = Case(trace=trace, gpus=gpus, **conditions)
    runs = [Run(case, name, validate, log) for name in _names(policies, case)]
    if log is not None and len(runs) > 1:
        raise OptionError("--log takes the log of one policy; --policies names more")
    tasks, too_big = case.tasks()
    if not tasks:
        raise OptionError(f"--gpus {gpus}: no job of the trace fits on them")
    out.mkdir(parents=True, exist_ok=True)
    if too_big:
        click.echo(f"{too_big} jobs never fit on {gpus} GPUs and are left out", err=True)
    with watched([run.policy for run in runs], len(tasks)) as progress:
        results = replay_all(runs, processes, progress)
    _write(results, out, heading(case, tasks), figures=figures)


def _names(policies: str, case: Case) -> list[str]:
    names = [name.strip() for name in policies.split(",") if name.strip()]
    if not names:
        raise OptionError("--policies names none")
    for name in names:
        case.policy(name)
    return list(dict.fromkeys(names))


def _write(results: list[Result], out: Path, title: str, *, figures: bool) -> None:
    rows = [result.row for result in results]
    text = f"{title}\n{as_text(rows)}\n{LEGEND}"
    (out / "results.json").write_text(as_json(rows))
    (out / "results.csv").write_text(as_csv(rows))
    (out / "table.txt").write_text(text)
    click.echo(text, nl=False)
    if figures:
        from tools.replay.figures import draw_all  # matplotlib takes a second to import

        draw_all(results, out, title)


@replay.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--validate", is_flag=True, help="Check the engine's invariants at every instant.")
def again(file: Path, validate: bool) -> None:
    """Give an event log to a new engine; fail where it answers otherwise than it did."""
    try:
        replayed = give_again(file, validate=validate)
    except ReplayError as error:
        _fail(error)
    kinds = ", ".join(f"{number} {kind}" for kind, number in replayed.events.items())
    click.echo(f"{replayed.instants} instants, {kinds}: the same answers, state {replayed.state}")


def _fail(error: ReplayError) -> None:
    click.echo(f"replay: {error}", err=True)
    sys.exit(error.exit_code)


replay.add_command(tables)
replay.add_command(scaling)

if __name__ == "__main__":
    replay(prog_name="python -m tools.replay")
