"""`lazer history`."""

from __future__ import annotations

import json

import click

from cachexfs.units import format_duration
from lazerd.cli.asking import client, json_option

HEADS = ("JOB", "NAME", "USER", "GPUS", "END", "EXIT", "ENDED", "TOOK", "WORK", "PREEMPTED", "WHY")


@click.command()
@json_option
@click.option("-n", "--limit", default=100, show_default=True, help="How many.")
def history(as_json: bool, limit: int) -> None:
    """The jobs that have ended, the latest first."""
    found = client().ask("history", limit=limit)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    from lazerd.cli.table import table, when

    click.echo(
        table(
            HEADS,
            (
                (
                    job["job"],
                    job["name"],
                    job["user"],
                    job["gpus"],
                    job["end"],
                    "-" if job["exit_code"] is None else job["exit_code"],
                    when(job["ended_at"]),
                    format_duration(job["ended_at"] - job["submitted_at"]),
                    format_duration(job["work_s"]),
                    job["preemptions"],
                    job["detail"],
                )
                for job in found
            ),
        )
    )
