"""A policy from its name."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Information(Enum):
    """Where the durations of jobs come from."""

    GIVEN = "given"
    """`JobSpec.estimate_s`, however good it is."""
    HISTORY = "history"
    """Finished jobs of the same user, name and size."""
    NONE = "none"
    """Nowhere: only what a job has attained, and how long jobs take in general."""


@dataclass(frozen=True, slots=True)
class Policy:
    """An order, a variant, and the information they rest on."""

    name: str
    information: Information


def policy_named(name: str, information: Information = Information.GIVEN) -> Policy:
    """The policy `ORDER`, `ORDER/VARIANT` or `lazer`; ValueError for any other name."""
    return Policy(name, information)
