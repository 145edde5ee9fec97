"""`cachexfs peer`: the replica store of this node."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from cachexfs.cli.background import start_in_background, teller
from cachexfs.cli.options import config_option
from cachexfs.config import load


@click.command()
@config_option
@click.option("-f", "foreground", is_flag=True, help="Stay in the foreground.")
@click.option("--ready-fd", type=int, hidden=True)
def peer(config_file: Path | None, foreground: bool, ready_fd: int | None) -> None:
    """Serve the replica store of this node. Returns when it listens."""
    config = load(config_file)
    if not foreground:
        log = Path(config.node.state_dir) / "peer.log"
        start_in_background(
            ["peer", *(["-c", str(config_file.resolve())] if config_file else [])], log
        )
        return
    import trio

    from cachexfs import peerd

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")

    async def run() -> None:
        await peerd.run(config, ready=teller(ready_fd))

    trio.run(run)
