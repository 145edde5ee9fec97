"""`lazer nodes`."""

from __future__ import annotations

import json

import click

from lazerd.cli.asking import client, json_option

HEADS = ("NODE", "GPUS", "FREE", "LEAVING", "KEPT", "STATE", "JOBS")


@click.command()
@json_option
def nodes(as_json: bool) -> None:
    """The nodes: how many of their GPUs are free, on their way out, kept for somebody."""
    found = client().ask("nodes")
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    from lazerd.cli.table import table

    click.echo(
        table(
            HEADS,
            (
                (
                    node["name"],
                    node["gpus"],
                    node["free"],
                    node["leaving"],
                    node["kept"],
                    f"drained: {node['why']}" if node["drained"] else "up",
                    ",".join(node["jobs"]) or "-",
                )
                for node in found
            ),
        )
    )
