"""`cachexfs evict`, `pin` and `unpin`."""

from __future__ import annotations

import click

from cachexfs.cli.asking import by_daemon
from cachexfs.cli.options import paths_argument
from cachexfs.units import format_size


@click.command()
@paths_argument
def evict(paths: tuple[str, ...]) -> None:
    """Give up the RAM copies of durable files."""
    freed = sum(client.ask("evict", paths=below) for client, below in by_daemon(paths))
    click.echo(f"{format_size(freed)} freed")


@click.command()
@paths_argument
def pin(paths: tuple[str, ...]) -> None:
    """Keep the RAM copies of files, whatever else needs the room."""
    for client, below in by_daemon(paths):
        client.ask("pin", paths=below)


@click.command()
@paths_argument
def unpin(paths: tuple[str, ...]) -> None:
    """Let the RAM copies of files go when room is needed."""
    for client, below in by_daemon(paths):
        client.ask("unpin", paths=below)
