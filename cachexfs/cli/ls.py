"""`cachexfs ls`."""

from __future__ import annotations

import json

import click

from cachexfs.cli.asking import by_daemon
from cachexfs.cli.options import json_option, paths_argument


@click.command()
@paths_argument
@json_option
def ls(paths: tuple[str, ...], as_json: bool) -> None:
    """The state of each file named, or below a directory named."""
    files = [
        file
        for client, below in by_daemon(paths)
        for file in client.ask("ls", paths=below, patience_s=None)
    ]
    if as_json:
        click.echo(json.dumps(files, indent=2))
        return
    import msgspec

    from cachexfs.status.report import FileReport
    from cachexfs.status.text import of_files

    for line in of_files(msgspec.convert(files, list[FileReport])):
        click.echo(line)
