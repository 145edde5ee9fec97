"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

from cachexfs.units import parse_duration


def duration(text: str) -> float:
    """30, 30s, 5m -> seconds."""
    return parse_duration(text)


config_option = click.option(
    "-c",
    "--config",
    "config_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The configuration file (default: /etc/cachexfs/cachexfs.toml, if it is there).",
)
json_option = click.option("--json", "as_json", is_flag=True, help="For programs.")
timeout_option = click.option(
    "--timeout", "timeout_s", type=duration, help="Give up after this time (exit code 75)."
)
paths_argument = click.argument("paths", nargs=-1, required=True)
"""Plain text: `click.Path` would look at each, and wait for a mount that is frozen."""
