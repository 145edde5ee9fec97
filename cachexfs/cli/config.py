"""`cachexfs config`."""

from __future__ import annotations

from pathlib import Path

import click

from cachexfs.cli.options import config_option
from cachexfs.config import load, read_secret, to_toml


@click.group()
def config() -> None:
    """Check or show the configuration."""


@config.command()
@config_option
def check(config_file: Path | None) -> None:
    """Say whether the file is right; exit code 2 if not."""
    found = load(config_file)
    if found.has_cluster or found.peer:
        read_secret(found)
    click.echo("the configuration is right")


@config.command()
@config_option
def show(config_file: Path | None) -> None:
    """Print the configuration with every default written out."""
    click.echo(to_toml(load(config_file)), nl=False)
