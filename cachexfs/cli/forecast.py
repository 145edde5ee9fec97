"""`cachexfs forecast`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from cachexfs.cli.options import config_option, json_option
from cachexfs.client import Client, all_mounts, of_path
from cachexfs.config import load
from cachexfs.errors import NotRunning, UsageError


@click.command()
@click.argument("path", required=False, type=str)
@config_option
@json_option
@click.option(
    "--plot",
    "figure",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="Also draw it: PNG, PDF or SVG by the suffix. Needs matplotlib.",
)
def forecast(
    path: str | None, config_file: Path | None, as_json: bool, figure: Path | None
) -> None:
    """When will it be safe, what would be lost, how often to save, by which path.

    For the mount that PATH is on and the files at and below it; without PATH, for the one mount of
    this node.
    """
    client, below = of_path(path) if path else (_only(config_file), "")

    import msgspec

    from cachexfs.outlook import compute, text
    from cachexfs.outlook.gather import gather

    found = gather(client, below)
    made = compute.summarize(
        client.mountpoint, found.known, found.model, found.records, found.decisions, found.notes
    )
    click.echo(
        json.dumps(msgspec.to_builtins(made), indent=2) if as_json else text.of_summary(made)
    )
    if figure is not None:
        _draw(figure, found)


def _draw(figure: Path, found: object) -> None:
    from cachexfs.outlook.gather import Gathered

    assert isinstance(found, Gathered)
    try:
        from cachexfs.outlook.figure import draw

        draw(figure, found.known, found.model, found.records)
    except ModuleNotFoundError as error:
        raise UsageError(f"--plot needs {error.name}: pip install 'cachexfs[all]'") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"--plot: {error}") from None


def _only(config_file: Path | None) -> Client:
    clients = all_mounts(Path(load(config_file).node.state_dir))
    if not clients:
        raise NotRunning("no mount of CacheX-FS is running here")
    if len(clients) > 1:
        raise UsageError("this node has several mounts: name one")
    (report,) = clients[0].ask("report")["mounts"]
    return Client(clients[0].socket_path, report["mountpoint"])
