"""What the commands share: the daemon to ask, options, arguments that complete themselves."""

from __future__ import annotations

import os
from pathlib import Path

import click

from cachexfs.units import parse_duration
from lazerd.client import Client, find_socket
from lazerd.errors import LazerError


def client() -> Client:
    """The daemon that --socket, LAZER_SOCKET or the usual places name."""
    named = click.get_current_context().find_root().obj
    return Client(Path(named) if named else find_socket(os.environ))


def duration(text: str) -> float:
    """30, 30s, 5m, 2h -> seconds."""
    return parse_duration(text)


json_option = click.option("--json", "as_json", is_flag=True, help="For programs.")


def complete_jobs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The ids of the jobs that live; none when nobody answers."""
    try:
        rows = Client(find_socket(os.environ)).ask("queue", patience_s=1.0)
    except LazerError:
        return []
    return [row["job"] for row in rows if row["job"].startswith(incomplete)]


job_argument = click.argument("job", shell_complete=complete_jobs)
jobs_argument = click.argument("jobs", nargs=-1, required=True, shell_complete=complete_jobs)
