"""`lazer submit`."""

from __future__ import annotations

import json
import os
from typing import Any

import click

from lazerd.cli.asking import client, duration, json_option


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--gpus", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--name", default="", help="For people; the command's by default.")
@click.option("--class", "job_class", default="", help="A class of the configuration.")
@click.option("--signal", default="", help="What asks the job to go: TERM, USR1, ...")
@click.option("--grace", "grace_s", type=duration, help="How long it may take to go.")
@click.option("--estimate", "estimate_s", type=duration, help="How long it works, set-up apart.")
@click.option("--setup", "setup_s", type=duration, help="How long its set-up takes.")
@click.option(
    "--checkpoint", "checkpoint_s", type=duration, help="Work between two of its checkpoints."
)
@click.option("-o", "--output", default="", help="A file; %j is the job's id.")
@click.option("-e", "--error", default="", help="The same for errors (default: the output).")
@click.option("-D", "--directory", default="", help="Where it runs (default: here).")
@click.option("--parsable", is_flag=True, help="Print the job's id alone.")
@json_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def submit(
    command: tuple[str, ...], directory: str, parsable: bool, as_json: bool, **wanted: Any
) -> None:
    """Run COMMAND as a job, when its turn comes; with this environment, in this directory.

    A job that is preempted is started again later, with the same command: it shall find what it
    has saved.
    """
    answer = client().ask(
        "submit",
        command=command,
        directory=os.path.abspath(directory or os.getcwd()),
        environment=dict(os.environ),
        **wanted,
    )
    if as_json:
        click.echo(json.dumps(answer))
    elif parsable:
        click.echo(answer["job"])
    else:
        click.echo(f"Submitted job {answer['job']}")
