"""`lazer queue`."""

from __future__ import annotations

import json

import click

from cachexfs.units import format_duration
from lazerd.cli.asking import client, json_option

HEADS = ("JOB", "NAME", "USER", "GPUS", "STATE", "TIME", "PREEMPTED", "REASON")


@click.command()
@json_option
@click.option("--parsable", is_flag=True, help="One job a line, fields separated by |.")
@click.option("--user", default="", help="Of this user only.")
def queue(as_json: bool, parsable: bool, user: str) -> None:
    """The jobs that have not ended, in the order of their submission."""
    rows = [row for row in client().ask("queue") if user in ("", row["user"])]
    if as_json:
        click.echo(json.dumps(rows))
        return
    cells = [
        (
            row["job"],
            row["name"],
            row["user"],
            row["gpus"],
            row["state"],
            format_duration(row["in_state_s"]),
            row["preemptions"],
            row["reason"] or row["where"],
        )
        for row in rows
    ]
    if parsable:
        click.echo("\n".join("|".join(map(str, line)) for line in (HEADS, *cells)))
        return
    from lazerd.cli.table import table

    click.echo(table(HEADS, cells))
