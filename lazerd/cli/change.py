"""`lazer cancel`, `hold` and `release`: one verb each, of several jobs."""

from __future__ import annotations

import click

from lazerd.cli.asking import client, jobs_argument


@click.command()
@jobs_argument
def cancel(jobs: tuple[str, ...]) -> None:
    """End jobs: signal, grace, kill. A pending one leaves the line."""
    client().ask("cancel", jobs=jobs)


@click.command()
@jobs_argument
def hold(jobs: tuple[str, ...]) -> None:
    """Keep pending jobs from starting."""
    client().ask("hold", jobs=jobs)


@click.command()
@jobs_argument
def release(jobs: tuple[str, ...]) -> None:
    """Let held jobs go on."""
    client().ask("release", jobs=jobs)
