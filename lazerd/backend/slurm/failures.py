"""What a command of Slurm that failed has told: a table, the first row that fits counts. Pure."""

from __future__ import annotations

from lazerd.backend.slurm.errors import (
    AlreadySo,
    NoSuchJob,
    NotPermitted,
    Refused,
    SlurmError,
    Unreachable,
)

TABLE: tuple[tuple[str, type[SlurmError]], ...] = (
    ("invalid job id specified", NoSuchJob),
    ("access/permission denied", NotPermitted),
    ("user not privileged", NotPermitted),
    ("must have operator privileges", NotPermitted),
    ("job/step already completing or completed", AlreadySo),
    ("job is pending execution", AlreadySo),
    ("job is no longer pending execution", AlreadySo),
    ("job already running", AlreadySo),
    ("job has already finished", AlreadySo),
    ("unable to contact slurm controller", Unreachable),
    ("connection refused", Unreachable),
    ("connection timed out", Unreachable),
    ("connection reset", Unreachable),
    ("socket timed out", Unreachable),
    ("timed out", Unreachable),
    ("zero bytes were transmitted", Unreachable),
    ("insane message length", Unreachable),
    ("transport endpoint is not connected", Unreachable),
    ("unexpected missing socket", Unreachable),
    ("communications connection failure", Unreachable),
    ("communications receive failure", Unreachable),
    ("communications send failure", Unreachable),
    ("communications shutdown failure", Unreachable),
    ("controller in standby mode", Unreachable),
    ("temporarily unable", Unreachable),
    ("resource temporarily unavailable", Unreachable),
    ("slurmctld is busy", Unreachable),
    ("munge encode failed", Unreachable),
    ("authentication error", Unreachable),
    ("failed to fetch config", Unreachable),
    ("could not establish a configuration source", Unreachable),
    ("unknown host", Unreachable),
)
"""What stderr says, in small letters (slurm_errno.c, read of 22.05 and 24.05) -> what it means.

Questions about a job come first: their words are exact. That munge does not answer is no verdict on
a job either.
"""


def failure_of(command: str, status: int, stderr: str) -> SlurmError:
    """The error that a failed command stands for. What no row knows is a refusal."""
    said = stderr.strip()
    low = said.lower()
    last = said.splitlines()[-1] if said else f"it ended with status {status} and said nothing"
    for words, error in TABLE:
        if words in low:
            return error(f"{command}: {last}")
    if status < 0:
        return Unreachable(f"{command} was ended by signal {-status}")
    return Refused(f"{command}: {last}")
