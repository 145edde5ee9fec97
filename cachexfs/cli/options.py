"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import click

from cachexfs.config import Config, load
from cachexfs.units import parse_duration

F = TypeVar("F")


class Seconds(click.ParamType):
    """A duration: 30, 30s, 5m."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds."""
        try:
            return parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


config_option = click.option(
    "-c",
    "--config",
    "config_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The configuration file (default: /etc/cachexfs/cachexfs.toml, if it is there).",
)
json_option = click.option("--json", "as_json", is_flag=True, help="For programs.")
timeout_option = click.option(
    "--timeout", "timeout_s", type=Seconds(), help="Give up after this time (exit code 75)."
)
paths_argument = click.argument("paths", nargs=-1, required=True, type=click.Path())


def load_config(config_file: Path | None) -> Config:
    """The configuration that a command works with."""
    return load(config_file)
