"""`python -m tools.replay tables`: run all cells, and write the tables into docs/replay.md."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import click

from tools.replay.cache import ROOT, Cache, code
from tools.replay.case import Case
from tools.replay.cells import SWEEP, TABLES, Table, located, sweep_policies
from tools.replay.document import FAILED, Rows, details, futile_shares, put, summary
from tools.replay.driver import EngineFault
from tools.replay.errors import ReplayError
from tools.replay.measures import Row
from tools.replay.runs import Run, replay


@dataclass(frozen=True)
class Wanted:
    """One run of one table: `name` is TABLE/CELL/POLICY."""

    table: str
    cell: str
    policy: str
    case: Case

    @property
    def name(self) -> str:
        """What `--only` is compared with."""
        return f"{self.table}/{self.cell}/{self.policy}"


@click.command()
@click.option(
    "--only",
    multiple=True,
    metavar="PATTERN",
    help="TABLE/CELL/POLICY with * and ?, such as 'known/muri-*'; may be repeated.",
)
@click.option(
    "--traces",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    default=ROOT.parent / "shared" / "traces",
    show_default=True,
)
@click.option(
    "--cache",
    "cached",
    type=click.Path(file_okay=False, path_type=Path),
    default=ROOT / "build" / "replay",
    show_default=True,
)
@click.option(
    "--document",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    default=ROOT / "docs" / "replay.md",
    show_default=True,
)
@click.option(
    "--jobs",
    "processes",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Replays at a time.",
)
@click.option("--list", "listing", is_flag=True, help="Only say what has still to be run.")
@click.option("--no-run", is_flag=True, help="Only write the tables from what was run before.")
def tables(
    only: Sequence[str], traces: Path, cached: Path, document: Path, processes: int, listing: bool,
    no_run: bool,
) -> None:  # fmt: skip
    """Run all cells that were not run before with this code, and write the tables.

    A cell is in its table once all of its policies were run. Stop it at any time: what was measured
    is kept, and the next call goes on.
    """
    cache = Cache(cached)
    try:
        wanted = [each for each in _all(traces) if _is_meant(each, only)]
        missing = [each for each in wanted if cache.find(each.case, each.policy) is None]
        click.echo(f"code {code()}: {len(wanted)} runs, {len(missing)} to do", err=True)
        if listing:
            click.echo("\n".join(each.name for each in missing))
            return
        if not no_run:
            _run(missing, cache, processes)
        _write(traces, cache, document)
    except ReplayError as error:
        click.echo(f"replay: {error}", err=True)
        sys.exit(error.exit_code)


def _run(wanted: Sequence[Wanted], cache: Cache, processes: int) -> None:
    for number, (each, row) in enumerate(_measured(wanted, processes), start=1):
        cache.keep(each.case, each.policy, row)
        click.echo(f"{number}/{len(wanted)} {each.name}: {_short(row)}", err=True)


def _all(traces: Path) -> Iterator[Wanted]:
    for table in TABLES:
        yield from _of(table, traces)
    for cell, case in SWEEP.items():
        for policy in sweep_policies(int(case.setup.partition(":")[2])):
            yield Wanted("sweep", cell, policy, located(case, traces))


def _of(table: Table, traces: Path) -> Iterator[Wanted]:
    for cell, policy, case in table.runs():
        yield Wanted(table.name, cell, policy, located(case, traces))


def _is_meant(wanted: Wanted, only: Sequence[str]) -> bool:
    return not only or any(fnmatch(wanted.name, f"{pattern}*") for pattern in only)


def _measured(wanted: Sequence[Wanted], processes: int) -> Iterator[tuple[Wanted, Row]]:
    if processes == 1:
        yield from ((each, _row(each)) for each in wanted)
        return
    with ProcessPoolExecutor(processes) as pool:
        futures = {pool.submit(_row, each): each for each in wanted}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _row(wanted: Wanted) -> Row:
    """An engine that fails on one run does not end the others."""
    try:
        return replay(Run(wanted.case, wanted.policy)).row
    except EngineFault as error:
        return {"policy": wanted.policy, FAILED: str(error)}


def _short(row: Row) -> str:
    if FAILED in row:
        return str(row[FAILED])
    counts = f"{row['preemptions']} preempted, {row['futile']} futile"
    return f"mean {row['jct_mean_s'] / 3600:.3f} h, {counts}, {row['wall_s']:.1f} s"


def _write(traces: Path, cache: Cache, document: Path) -> None:
    """Write every table, with the cells of which all runs are there."""
    for table in TABLES:

        def shown(rows: Rows, loads: Mapping[str, str], best: str = table.best) -> str:
            return f"{summary(rows, loads, best)}\n{details(rows)}"

        _put(document, table.name, list(_of(table, traces)), cache, shown)
    sweep = [each for each in _all(traces) if each.table == "sweep"]
    _put(document, "sweep", sweep, cache, futile_shares)


def _put(
    document: Path,
    name: str,
    wanted: Sequence[Wanted],
    cache: Cache,
    shown: Callable[[Rows, Mapping[str, str]], str],
) -> None:
    rows = _rows(wanted, cache)
    if rows:
        cases = {each.cell: each.case for each in wanted if each.cell in rows}
        left = dict.fromkeys(each.cell for each in wanted if each.cell not in rows)
        note = f" Not run: {', '.join(left)}." if left else ""
        put(document, name, f"Code {code()}.{note}\n\n{shown(rows, _loads(cases))}")


def _rows(wanted: Sequence[Wanted], cache: Cache) -> Rows:
    """By cell and policy; a cell of which a run is missing is left out."""
    rows: dict[str, dict[str, Row]] = {}
    missing = set()
    for each in wanted:
        row = cache.find(each.case, each.policy)
        if row is None:
            missing.add(each.cell)
        else:
            rows.setdefault(each.cell, {})[each.policy] = row
    return {cell: each for cell, each in rows.items() if cell not in missing}


def _loads(cases: dict[str, Case]) -> dict[str, str]:
    """Offered load without set-ups, and with one for each job."""
    loads = {}
    for cell, case in cases.items():
        tasks, _ = case.tasks()
        span_s = max(1, tasks[-1].submit_s - tasks[0].submit_s) * case.gpus
        work = sum(task.duration_s * task.spec.gpus for task in tasks) / span_s
        setup = sum(task.setup_s * task.spec.gpus for task in tasks) / span_s
        loads[cell] = f"{work:.2f} ({work + setup:.2f})"
    return loads
