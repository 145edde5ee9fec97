"""`lazer working`."""

from __future__ import annotations

import os

import click

from lazerd.cli.asking import client
from lazerd.client import JOB_VARIABLE, this_job
from lazerd.errors import UsageError


@click.command()
@click.argument("job", required=False)
def working(job: str | None) -> None:
    """Say that set-up is over, from within a job (LAZER_JOB_ID, SLURM_JOB_ID), or of JOB.

    From then on the job may be preempted; until then it is not.
    """
    named = job or this_job(os.environ)
    if not named:
        raise UsageError(f"this is not within a job ({JOB_VARIABLE} is not set): name one")
    client().ask("working", job=named)
