"""What is wanted of each job against what Slurm says of it: reports and orders come out. Pure.

Nothing is remembered of an order: as long as what is wanted is not what is seen, the next look
orders it again. So a slurmctld that was away, or that lost its last seconds in a crash, needs no
repair, and neither does a lazerd that was: the marks on the jobs say what it had released.

Who may say what, by what is wanted (rows) and seen (columns):

             pending            running          completing  over               missing
    LINE     hold               Running          -           Withdrawn          Withdrawn
    RUN      begin, or Ended    Began            -           (Began) Ended      Ended
    LEAVE    hold, then Gone    tell, requeue    Stuck       requeue, or Ended  Gone
    END      cancel             cancel           Stuck       Gone               Gone
    DROP     cancel             cancel           -           forget             forget
    OVER     hold               -                -           -                  -

A job that somebody else requeues, or that loses its node, has Ended and is submitted anew: the
daemon has forgotten it by the look after. One that runs and was not started by lazerd is a guest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from lazerd.backend.protocol import Eligible, Known, NotEligible, Report, Submission
from lazerd.backend.slurm import leaving, orders, placed, waiting
from lazerd.backend.slurm.controls import Controls
from lazerd.backend.slurm.dependencies import Dependencies
from lazerd.backend.slurm.entry import Entry, Seen, Wanted, seen_of
from lazerd.backend.slurm.glance import Glance
from lazerd.backend.slurm.marks import Marked, mark_of
from lazerd.backend.slurm.nodes import Nodes
from lazerd.backend.slurm.orders import Order
from lazerd.backend.slurm.records import SlurmJob, Snapshot
from lazerd.backend.slurm.roster import Roster
from lazerd.backend.slurm.standing import each_task, spec_of, why_not_eligible, why_not_steered
from lazerd.model.cluster import Placement

LOOKS_MISSING = 2
"""Looks in a row without a job before it is taken for gone: one may come from a slurmctld that is
still reading its state."""


@dataclass(frozen=True, slots=True)
class Step:
    """What follows from one look."""

    reports: tuple[Report, ...]
    orders: tuple[Order, ...]


class Steering:
    """All jobs of the partitions that lazerd steers."""

    def __init__(self, partitions: Iterable[str], roster: Roster) -> None:
        self.partitions = frozenset(partitions)
        self.controls = Controls()
        self.entries: dict[str, Entry] = {}
        self.others: dict[str, str] = {}
        """Jobs left to Slurm -> why."""
        self._roster = roster
        self._nodes = Nodes(roster, self.partitions)
        self._dependencies = Dependencies()
        self._submitted_s: dict[str, float] = {}
        self._shy: dict[str, tuple[float, str]] = {}

    # --- what the daemon wants

    def adopt(self, jobs: Iterable[Known]) -> None:
        """The jobs as the daemon left them."""
        for known in jobs:
            entry = Entry(
                known.job_id,
                placement=known.placement,
                began=known.working,
                not_eligible=None,
                signal_number=known.signal_number,
                grace_s=known.grace_s,
            )
            if known.placement:
                entry.wanted = Wanted.LEAVE if known.leaving else Wanted.RUN
            self.entries[known.job_id] = entry

    def start(self, job_id: str, placement: Placement, now_s: float) -> bool:
        """Start it there. False: it is not known, so it cannot be started."""
        entry = self.entries.get(job_id)
        if entry is None or entry.wanted in (Wanted.OVER, Wanted.DROP):
            return False
        if entry.wanted is Wanted.LINE:
            entry.turn(Wanted.RUN, now_s)
            entry.placement, entry.began = placement, False
            entry.restarts = entry.job.restarts if entry.job is not None else None
        return True

    def leave(self, job_id: str, signal_number: int, grace_s: float, now_s: float) -> None:
        """Out, and in line again."""
        entry = self.entries.get(job_id)
        if entry is not None and entry.wanted is Wanted.RUN:
            entry.turn(Wanted.LEAVE, now_s)
            entry.signal_number, entry.grace_s = signal_number, grace_s

    def end(self, job_id: str, now_s: float) -> None:
        """Out for good."""
        entry = self.entries.get(job_id)
        if entry is not None and entry.wanted in (Wanted.RUN, Wanted.LEAVE):
            entry.turn(Wanted.END, now_s)

    def drop(self, job_id: str, now_s: float) -> None:
        """Out of the line."""
        entry = self.entries.get(job_id)
        if entry is not None and entry.wanted is not Wanted.OVER and not entry.is_guest:
            entry.turn(Wanted.DROP, now_s)

    def forget(self, job_id: str) -> None:
        """Its end is stored."""
        entry = self.entries.get(job_id)
        if entry is not None and entry.wanted is Wanted.OVER:
            del self.entries[job_id]  # Slurm may still show it: what is over is not met anew

    def failed(self, order: Order) -> None:
        """An order did not come through. All but a signal show in the next look."""
        entry = self.entries.get(order.job_id)
        if entry is not None and order.what == "tell":
            entry.signalled = False

    def nodes_of(self, placement: Placement) -> tuple[str, ...]:
        """The names of the nodes of a placement."""
        return self._roster.nodes_of(placement)

    # --- what is seen

    def look(
        self, snapshot: Snapshot, now_s: float, is_clear: Callable[[str], bool] = lambda _: True
    ) -> Step:
        """Reports and orders that follow from what Slurm says now.

        `is_clear` says whether a job that Slurm calls ended is off its GPUs as well.
        """
        glance = Glance(now_s, self.controls, self._roster, self._dependencies.owed)
        steered, others = self._sorted(snapshot.jobs)
        placements = [entry.placement for entry in self.entries.values() if entry.holds]
        glance.reports += self._nodes.look(snapshot.nodes, others.values(), placements)
        glance.widest = self._nodes.widest
        for job_id, job in others.items():
            self._let_go(glance, job_id, job)
        for job_id, job in steered.items():
            if job_id not in self.entries:
                self._meet(glance, job_id, job)
        for entry in list(self.entries.values()):
            self._take(glance, entry, steered.get(entry.job_id), is_clear)
        for job_id in glance.over:
            self.entries.pop(job_id, None)
        for job_id in self._submitted_s.keys() - steered.keys():
            del self._submitted_s[job_id]
        told = {e.job_id for e in self.entries.values() if e.wanted is Wanted.LEAVE}
        for order in self._dependencies.look(steered, told):
            glance.order(order)
        self._judge(glance, steered)
        return Step(tuple(glance.reports), tuple(glance.orders))

    def _sorted(self, jobs: Sequence[SlurmJob]) -> tuple[dict[str, SlurmJob], dict[str, SlurmJob]]:
        """Jobs to steer, and the others. What was steered once stays so, whatever becomes of it."""
        steered: dict[str, SlurmJob] = {}
        others: dict[str, SlurmJob] = {}
        self.others.clear()
        for job_id, job in each_task(jobs):
            why = "" if job_id in self.entries else why_not_steered(job, self.partitions)
            (others if why else steered)[job_id] = job
            if why and self.partitions.intersection(job.partitions) and not job.is_over:
                self.others[job_id] = why
        return steered, others

    def _let_go(self, glance: Glance, job_id: str, job: SlurmJob) -> None:
        """A job that the plugin has held, and that is none of lazerd's."""
        mark = mark_of(job.admin_comment)
        if job.is_pending and job.is_held and mark.kind is Marked.NEW:
            glance.order(orders.release(job_id, mark))

    def _meet(self, glance: Glance, job_id: str, job: SlurmJob) -> None:
        """A job that is new here, unless it is over."""
        seen = seen_of(job)
        if seen not in (Seen.PENDING, Seen.RUNNING):
            return
        spec, signal_number = spec_of(job, job_id, glance.widest, self.controls)
        # A requeue sets SubmitTime anew; its place in line is that of the first.
        spec = replace(spec, submitted_s=self._submitted_s.setdefault(job_id, spec.submitted_s))
        entry = Entry(job_id, signal_number=signal_number, grace_s=spec.grace_s, job=job)
        if seen is Seen.PENDING:
            glance.report(Submission(spec, signal_number))
        else:
            waiting.found_running(glance, entry, job)
        entry.since_s = glance.now_s
        self.entries[job_id] = entry

    def _take(
        self,
        glance: Glance,
        entry: Entry,
        job: SlurmJob | None,
        is_clear: Callable[[str], bool],
    ) -> None:
        """One job against what is wanted of it. What is still on its GPUs is still completing."""
        seen = seen_of(job)
        if (entry.wanted, seen) in GIVES_BACK and not is_clear(entry.job_id):
            seen = Seen.COMPLETING
        entry.since_s = entry.since_s or glance.now_s
        entry.misses = entry.misses + 1 if seen is Seen.MISSING else 0
        if 0 < entry.misses < LOOKS_MISSING:
            return
        entry.job = job or entry.job
        action = TABLE.get((entry.wanted, seen))
        if action is not None:
            action(glance, entry, job)
        if entry.shy is not None:
            self._shy[entry.job_id], entry.shy = entry.shy, None

    # --- who may start

    def _judge(self, glance: Glance, steered: dict[str, SlurmJob]) -> None:
        """Which jobs in line may start. An array lets only so many of its tasks."""
        active = Counter(_array_of(entry) for entry in self.entries.values() if entry.holds)
        for entry in self.entries.values():
            job = steered.get(entry.job_id)
            if entry.wanted is not Wanted.LINE or job is None or not job.is_pending:
                continue
            why = self._why_not(glance, entry, job)
            array = _array_of(entry)
            if not why and array and job.throttle and active[array] >= job.throttle:
                why = "JobArrayTaskLimit"
            active[array] += not why
            if entry.not_eligible is None or bool(why) != bool(entry.not_eligible):
                glance.report(NotEligible(entry.job_id, why) if why else Eligible(entry.job_id))
            entry.not_eligible = why

    def _why_not(self, glance: Glance, entry: Entry, job: SlurmJob) -> str:
        if owed := self._dependencies.owed.get(entry.job_id):
            return f"Dependency: {owed}"
        until_s, reason = self._shy.get(entry.job_id, (0.0, ""))
        if glance.now_s < until_s:
            return reason
        self._shy.pop(entry.job_id, None)
        return why_not_eligible(job, glance.now_s)


Action = Callable[[Glance, Entry, SlurmJob | None], None]

TABLE: dict[tuple[Wanted, Seen], Action] = {
    (Wanted.LINE, Seen.PENDING): waiting.hold,
    (Wanted.LINE, Seen.RUNNING): waiting.started_unasked,
    (Wanted.LINE, Seen.OVER): waiting.withdrawn,
    (Wanted.LINE, Seen.MISSING): waiting.withdrawn,
    (Wanted.RUN, Seen.PENDING): placed.begin,
    (Wanted.RUN, Seen.RUNNING): placed.began,
    (Wanted.RUN, Seen.OVER): placed.ended,
    (Wanted.RUN, Seen.MISSING): placed.ended,
    (Wanted.LEAVE, Seen.PENDING): leaving.gone,
    (Wanted.LEAVE, Seen.RUNNING): leaving.send_off,
    (Wanted.LEAVE, Seen.COMPLETING): leaving.wait,
    (Wanted.LEAVE, Seen.OVER): leaving.left,
    (Wanted.LEAVE, Seen.MISSING): leaving.departed,
    (Wanted.END, Seen.PENDING): waiting.cancel,
    (Wanted.END, Seen.RUNNING): waiting.cancel,
    (Wanted.END, Seen.COMPLETING): leaving.wait,
    (Wanted.END, Seen.OVER): leaving.departed,
    (Wanted.END, Seen.MISSING): leaving.departed,
    (Wanted.DROP, Seen.PENDING): waiting.cancel,
    (Wanted.DROP, Seen.RUNNING): waiting.cancel,
    (Wanted.DROP, Seen.OVER): waiting.forget,
    (Wanted.DROP, Seen.MISSING): waiting.forget,
    (Wanted.OVER, Seen.PENDING): waiting.hold,
}
"""The picture above, as data; where there is nothing, nothing is done."""

GIVES_BACK = frozenset(
    {
        (Wanted.RUN, Seen.OVER),
        (Wanted.LEAVE, Seen.PENDING),
        (Wanted.END, Seen.OVER),
    }
)
"""Where GPUs go back to the engine: only when they are seen empty."""


def _array_of(entry: Entry) -> str:
    array, _, task = entry.job_id.partition("_")
    return array if task else ""
