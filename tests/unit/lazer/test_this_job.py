"""Which job a process says it is part of."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from lazerd.client import this_job


@pytest.mark.parametrize(
    ("environment", "job"),
    [
        ({}, None),
        ({"LAZER_JOB_ID": "7"}, "7"),
        ({"SLURM_JOB_ID": "42"}, "42"),
        (
            {"SLURM_JOB_ID": "44", "SLURM_ARRAY_JOB_ID": "42", "SLURM_ARRAY_TASK_ID": "3"},
            "42_3",
        ),
        ({"LAZER_JOB_ID": "7", "SLURM_JOB_ID": "42"}, "7"),
    ],
)
def test_the_job_of_an_environment(environment: Mapping[str, str], job: str | None) -> None:
    assert this_job(environment) == job
