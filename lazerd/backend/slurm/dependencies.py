"""Dependencies on a job that only leaves. Pure.

A job that is told to go may end before it is put back in line: for that moment Slurm takes it for
ended, and lets go who waits for it. Such dependencies are remembered as they were and set again
when the job is back in line; until then who has them may not start.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set

from lazerd.backend.slurm import orders
from lazerd.backend.slurm.orders import Order
from lazerd.backend.slurm.records import SlurmJob

_STATE = re.compile(r"\((?:unfulfilled|fulfilled|failed)\)")
_TASKS = re.compile(r"_(?:\*|\d+)")


class Dependencies:
    """What each job in line waits for. `owed`: what Slurm has let go of too early, by job."""

    def __init__(self) -> None:
        self.owed: dict[str, str] = {}
        self._seen: dict[str, str] = {}

    def look(self, jobs: Mapping[str, SlurmJob], leaving: Set[str]) -> list[Order]:
        """What to set again. `leaving`: jobs that were told to go and are not back in line."""
        for job_id, job in jobs.items():
            if job.is_pending:
                self._compare(job_id, job, leaving)
            else:
                self._drop(job_id)
        for job_id in self._seen.keys() - jobs.keys():
            self._drop(job_id)
        return [
            orders.depend(job_id, owed)
            for job_id, owed in self.owed.items()
            if not waits_for(owed, leaving)
        ]

    def _compare(self, job_id: str, job: SlurmJob, leaving: Set[str]) -> None:
        before, now = self._seen.get(job_id, ""), plain(job.dependency)
        is_failed = "(failed)" in job.dependency
        if job_id in self.owed:
            if now == self.owed[job_id] and not is_failed:
                del self.owed[job_id]
            return
        if waits_for(before, leaving) and (now != before or is_failed):
            self.owed[job_id] = before
            return
        self._seen[job_id] = now

    def _drop(self, job_id: str) -> None:
        self.owed.pop(job_id, None)
        self._seen.pop(job_id, None)


def plain(dependency: str) -> str:
    """As it is written on a command line: `afterok:7(unfulfilled)` -> `afterok:7`."""
    return _TASKS.sub(lambda m: "" if m[0] == "_*" else m[0], _STATE.sub("", dependency))


def waits_for(dependency: str, jobs: Set[str]) -> bool:
    """Whether a dependency names one of these jobs, or an array that one of them is a task of."""
    if not dependency or not jobs:
        return False
    arrays = {job_id.split("_")[0] for job_id in jobs}
    named = re.findall(r":(\d+)(_\d+)?", plain(dependency))
    return any(number + task in jobs if task else number in arrays for number, task in named)
