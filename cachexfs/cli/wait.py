"""`cachexfs wait`."""

from __future__ import annotations

import time

import click

from cachexfs.cli.asking import by_daemon
from cachexfs.cli.options import paths_argument, timeout_option


@click.command()
@paths_argument
@click.option(
    "--for",
    "level",
    type=click.Choice(["captured", "replicated", "durable"]),
    required=True,
    help="The level to wait for.",
)
@timeout_option
def wait(paths: tuple[str, ...], level: str, timeout_s: float | None) -> None:
    """Return when every file named, or below a directory named, is safe enough."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    for client, below in by_daemon(paths):
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        client.ask("wait", paths=below, level=level, timeout_s=left, patience_s=None)
