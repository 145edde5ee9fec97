"""`cachexfs verify`."""

from __future__ import annotations

import json

import click

from cachexfs.cli.asking import by_daemon
from cachexfs.cli.options import json_option, paths_argument
from cachexfs.errors import CacheXError

_NOT_BAD = ("good", "not written here")


@click.command()
@paths_argument
@json_option
def verify(paths: tuple[str, ...], as_json: bool) -> None:
    """Hold every copy of every file named against its checksums: RAM, source, peers."""
    files = [
        file
        for client, below in by_daemon(paths)
        for file in client.ask("verify", paths=below, patience_s=None)
    ]
    if as_json:
        click.echo(json.dumps(files, indent=2))
    else:
        for file in files:
            copies = "; ".join(f"{tier}: {word}" for tier, word in file["copies"].items())
            click.echo(f"{file['path']}  {copies}")
    bad = [f for f in files if any(not w.startswith(_NOT_BAD) for w in f["copies"].values())]
    if bad:
        raise CacheXError(f"{len(bad)} of {len(files)} files have a copy that is not good")
