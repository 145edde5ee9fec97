"""One job that lazerd steers: what is wanted of it, and what was last seen. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lazerd.backend.slurm.marks import Marked, mark_of
from lazerd.backend.slurm.records import SlurmJob
from lazerd.model.cluster import Placement


class Wanted(Enum):
    """What the daemon wants of a job."""

    LINE = "line"
    """In line, held."""
    RUN = "run"
    """Running at its placement."""
    LEAVE = "leave"
    """Out, and in line again."""
    END = "end"
    """Out for good: cancelled while it ran."""
    DROP = "drop"
    """Out of the line for good; nothing is reported of it."""
    OVER = "over"
    """Its end has been reported; the record is kept until the daemon forgets it."""


class Seen(Enum):
    """What Slurm says of a job."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETING = "completing"
    OVER = "over"
    MISSING = "missing"
    UNKNOWN = "unknown"
    """A state that this program does not know: nothing is concluded from it."""


def seen_of(job: SlurmJob | None) -> Seen:
    """The one of these that a record is."""
    if job is None:
        return Seen.MISSING
    tests = (
        (job.is_completing, Seen.COMPLETING),
        (job.is_pending, Seen.PENDING),
        (job.is_running, Seen.RUNNING),
        (job.is_over, Seen.OVER),
    )
    return next((seen for applies, seen in tests if applies), Seen.UNKNOWN)


@dataclass(slots=True)
class Entry:
    """What steering remembers of a job. Times are seconds since 1970.

    `restarts` is Slurm's count when the job was last released: a greater one says that it ran and
    was put back. `signalled` says that a signal was ordered in this departure, before which an end
    is the job's own; `killed` that it did not go in its grace. A guest was not started by lazerd.
    `not_eligible` is what was last reported, None for not known. `released_s`: when it was let
    start, this time; `shy`: until when it may not, and why, because Slurm did not start it. `job`
    is the last record, None before the first.
    """

    job_id: str
    wanted: Wanted = Wanted.LINE
    placement: Placement = ()
    began: bool = False
    not_eligible: str | None = ""
    restarts: int | None = None
    since_s: float = 0.0
    signal_number: int = 15
    grace_s: float = 30.0
    signalled: bool = False
    killed: bool = False
    is_stuck: bool = False
    is_guest: bool = False
    released_s: float | None = None
    shy: tuple[float, str] | None = None
    misses: int = 0
    job: SlurmJob | None = None

    def turn(self, wanted: Wanted, now_s: float) -> None:
        """Something else is wanted from now on."""
        self.wanted, self.since_s, self.released_s = wanted, now_s, None
        self.signalled, self.killed, self.is_stuck = False, False, False

    @property
    def holds(self) -> bool:
        """Whether GPUs are taken for it."""
        return self.wanted in (Wanted.RUN, Wanted.LEAVE, Wanted.END)

    @property
    def was_put_back(self) -> bool:
        """Whether it ran since it was released and is in line again."""
        if self.job is None or seen_of(self.job) is not Seen.PENDING:
            return False
        if self.began:
            return True
        started = self.restarts
        if started is None:
            mark = mark_of(self.job.admin_comment)
            started = mark.number if mark.kind is Marked.START else self.job.restarts
        return self.job.restarts > started
