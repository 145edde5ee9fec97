"""One look at all jobs: what the steps about single jobs share, and what comes of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lazerd.backend.protocol import Report
from lazerd.backend.slurm.controls import Controls
from lazerd.backend.slurm.entry import Entry, Wanted
from lazerd.backend.slurm.orders import Order
from lazerd.backend.slurm.records import SlurmJob
from lazerd.backend.slurm.roster import Roster
from lazerd.model.cluster import Placement


@dataclass(slots=True)
class Glance:
    """`now_s` in seconds since 1970; `widest` is the GPUs of the largest node; `owed` are
    dependencies that Slurm has let go of too early, by job; `over` are entries to be dropped."""

    now_s: float
    controls: Controls
    roster: Roster
    owed: Mapping[str, str]
    widest: int = 0
    reports: list[Report] = field(default_factory=list)
    orders: dict[Order, None] = field(default_factory=dict)
    over: list[str] = field(default_factory=list)

    def report(self, report: Report) -> None:
        """Tell the daemon."""
        self.reports.append(report)

    def order(self, order: Order) -> None:
        """Have it done; twice the same is once."""
        self.orders[order] = None

    def turn(self, entry: Entry, wanted: Wanted) -> None:
        """Something else is wanted of a job from now on."""
        entry.turn(wanted, self.now_s)

    def placement_of(self, job: SlurmJob) -> Placement:
        """Where a job runs."""
        numbered = ((self.roster.number(held.node), held.gpus) for held in job.held)
        return tuple((number, gpus) for number, gpus in numbered if number is not None)
