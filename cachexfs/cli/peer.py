"""`cachexfs peer`: the replica store of this node."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from cachexfs.cli.background import run_daemon, start_in_background, teller
from cachexfs.cli.options import config_option
from cachexfs.config import load


@click.command()
@config_option
@click.option("-f", "foreground", is_flag=True, help="Stay in the foreground.")
@click.option("--ready-fd", type=int, hidden=True)
def peer(config_file: Path | None, foreground: bool, ready_fd: int | None) -> None:
    """Serve the replica store of this node. Returns when it listens."""
    config = load(config_file)
    if foreground:
        from cachexfs import peerd

        run_daemon(partial(peerd.run, config, ready=teller(ready_fd)))
        return
    named = ["-c", str(config_file.resolve())] if config_file else []
    start_in_background(["peer", *named], Path(config.node.state_dir) / "peer.log")
