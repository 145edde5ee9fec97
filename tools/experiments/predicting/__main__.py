"""`tools/experiments/predict`: the command line."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from cachexfs.errors import CacheXError
from tools.experiments.predicting import (
    deaths,
    figures,
    held,
    pages,
    paths,
    replay,
    retelling,
    sweep,
    writes,
)

_out = click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("predict-results"),
    show_default=True, help="Directory for results.json, table.md and figure.png.",
)  # fmt: skip
_page = click.option(
    "--page", type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Put the table between its markers on this page (docs/durability.md).",
)  # fmt: skip
_quick = click.option("--quick", is_flag=True, help="About a minute: whether it works at all.")


@click.group()
def main() -> None:
    """How well the durability model forecasts, on real mounts. Needs root and GlusterFS."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the cluster is taken down


@main.command("writes")
@click.option("--minutes", type=float, help="Of writing, in all [default: 13.8].")
@_quick
@_out
@_page
def writes_(minutes: float | None, quick: bool, out: Path, page: Path | None) -> None:
    """Completion times of ordinary writes and their phases, steady and in bursts."""
    plan = _planned(writes.Plan(), writes.QUICK, quick, minutes)
    log = _performed(lambda: writes.perform(plan, _say))
    made = writes.held(log)
    rows = held.rows(made)
    _save(out, {"plan": plan, "rows": rows, "forecasts": made, "busy": log.busy})
    figures.draw_writes(out / "figure.png", made, rows, log.busy)
    _finish("writes", held.as_table(rows), out, page)


@main.command("retold")
@click.argument("results", type=click.Path(path_type=Path, dir_okay=False, exists=True))
def retold_(results: Path) -> None:
    """The forecasts in a results.json of `writes`, as this version would have made them."""
    made = msgspec.json.decode(results.read_bytes(), type=_Forecasts).forecasts
    click.echo(retelling.as_table(made))


class _Forecasts(msgspec.Struct):
    """What is read of it."""

    forecasts: list[held.Held]


@main.command("paths")
@click.option("--shared", is_flag=True, help="One link of each host to the peers and the storage.")
@_quick
@_out
@_page
def paths_(shared: bool, quick: bool, out: Path, page: Path | None) -> None:
    """Which path auto takes in a sweep of speeds and load, beside the time of each path."""
    plan = paths.SHARED if shared else paths.QUICK if quick else paths.Plan()
    cells = _performed(lambda: paths.perform(plan, _say))
    _save(out, {"plan": plan, "total": sweep.total(cells), "cells": cells})
    figures.draw_paths(out / "figure.png", cells)
    _finish("shared" if shared else "paths", sweep.as_table(cells), out, page)


@main.command("deaths")
@click.option("--minutes", type=float, help="Of saving [default: 8].")
@_quick
@_out
@_page
def deaths_(minutes: float | None, quick: bool, out: Path, page: Path | None) -> None:
    """What 500 deaths lose over a measured run, beside what was forecast before it."""
    plan = _planned(deaths.Plan(), deaths.QUICK, quick, minutes)
    run = _performed(lambda: deaths.perform(plan, _say))
    _save(out, {"plan": plan, "verdicts": run.verdicts, "saves": run.saves})
    figures.draw_deaths(out / "figure.png", run)
    _finish("deaths", replay.as_table(run.verdicts), out, page)


def _planned(full: Any, quick_one: Any, quick: bool, minutes: float | None) -> Any:
    plan = quick_one if quick else full
    return plan if minutes is None else msgspec.structs.replace(plan, minutes=minutes)


def _performed(perform: Callable[[], Any]) -> Any:
    try:
        return perform()
    except (CacheXError, OSError) as error:
        _say(str(error))
        sys.exit(getattr(error, "exit_code", 1))


def _save(out: Path, results: dict[str, Any]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_bytes(msgspec.json.encode(results))


def _finish(part: str, table: str, out: Path, page: Path | None) -> None:
    (out / "table.md").write_text(table + "\n")
    click.echo(table)
    if page is not None:
        page.write_text(pages.with_table(page.read_text(), part, table))


def _say(sentence: str) -> None:
    click.echo(f"predict: {sentence}", err=True)


if __name__ == "__main__":
    main()
