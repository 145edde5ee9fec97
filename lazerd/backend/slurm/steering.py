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

from lazerd.backend.protocol import (
    Began,
    Eligible,
    Ended,
    Gone,
    Known,
    NotEligible,
    Report,
    Running,
    Stuck,
    Submission,
    Withdrawn,
)
from lazerd.backend.slurm import orders
from lazerd.backend.slurm.controls import Controls
from lazerd.backend.slurm.dependencies import Dependencies
from lazerd.backend.slurm.entry import Entry, Seen, Wanted, seen_of
from lazerd.backend.slurm.hosts import hosts_of
from lazerd.backend.slurm.marks import Mark, Marked, mark_of
from lazerd.backend.slurm.nodes import Nodes
from lazerd.backend.slurm.orders import Order
from lazerd.backend.slurm.records import SlurmJob, Snapshot
from lazerd.backend.slurm.roster import Roster
from lazerd.backend.slurm.standing import (
    USERS_HOLD,
    each_task,
    spec_of,
    why_not_eligible,
    why_not_steered,
)
from lazerd.model.cluster import Placement

LOOKS_MISSING = 2
"""Looks in a row without a job before it is taken for gone: one may come from a slurmctld that is
still reading its state."""

SPARE_S = 5.0
"""Added to Slurm's own limits before a job is called stuck."""

OWN_ENDS = frozenset({"CANCELLED", "TIMEOUT", "DEADLINE"})
"""Ends that are a job's own though it was told to go: it would not go on if it was put back."""


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
        self._reports: list[Report] = []
        self._orders: dict[Order, None] = {}
        self._now_s = 0.0

    # --- what the daemon wants

    def adopt(self, jobs: Iterable[Known]) -> None:
        """The jobs as the daemon left them."""
        for known in jobs:
            entry = Entry(
                known.job_id,
                placement=known.placement,
                began=known.working,
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
            self._turn(entry, Wanted.RUN, now_s)
            entry.placement, entry.began = placement, False
            entry.restarts = entry.job.restarts if entry.job is not None else None
        return True

    def leave(self, job_id: str, signal_number: int, grace_s: float, now_s: float) -> None:
        """Out, and in line again."""
        entry = self.entries.get(job_id)
        if entry is not None and entry.wanted is Wanted.RUN:
            self._turn(entry, Wanted.LEAVE, now_s)
            entry.signal_number, entry.grace_s = signal_number, grace_s

    def end(self, job_id: str, now_s: float) -> None:
        """Out for good."""
        entry = self.entries.get(job_id)
        if entry is not None and entry.wanted in (Wanted.RUN, Wanted.LEAVE):
            self._turn(entry, Wanted.END, now_s)

    def drop(self, job_id: str, now_s: float) -> None:
        """Out of the line."""
        entry = self.entries.get(job_id)
        if entry is not None and entry.wanted is not Wanted.OVER and not entry.is_guest:
            self._turn(entry, Wanted.DROP, now_s)

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

    def look(self, snapshot: Snapshot, now_s: float) -> Step:
        """Reports and orders that follow from what Slurm says now."""
        self._now_s = now_s
        steered, others = self._sorted(snapshot.jobs)
        placements = [e.placement for e in self.entries.values() if e.holds]
        self._reports += self._nodes.look(snapshot.nodes, others.values(), placements)
        self._let_go(others)
        for job_id, job in steered.items():
            if job_id not in self.entries:
                self._meet(job_id, job)
        for entry in list(self.entries.values()):
            self._take(entry, steered.get(entry.job_id))
        leaving = {e.job_id for e in self.entries.values() if e.wanted is Wanted.LEAVE}
        for order in self._dependencies.look(steered, leaving):
            self._order(order)
        self._judge(steered)
        reports, self._reports = tuple(self._reports), []
        made, self._orders = tuple(self._orders), {}
        return Step(reports, made)

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

    def _let_go(self, others: dict[str, SlurmJob]) -> None:
        """Jobs that the plugin has held, and that are none of lazerd's."""
        for job_id, job in others.items():
            mark = mark_of(job.admin_comment)
            if job.is_pending and job.is_held and mark.kind is Marked.NEW:
                self._order(orders.release(job_id, mark))

    def _meet(self, job_id: str, job: SlurmJob) -> None:
        """A job that is new here."""
        spec, signal_number = spec_of(job, job_id, self._nodes.widest, self.controls)
        # A requeue sets SubmitTime anew; its place in line is that of the first.
        spec = replace(spec, submitted_s=self._submitted_s.setdefault(job_id, spec.submitted_s))
        entry = Entry(job_id, signal_number=signal_number, grace_s=spec.grace_s, job=job)
        seen = seen_of(job)
        if seen is Seen.PENDING:
            self._reports.append(Submission(spec, signal_number))
        elif seen is Seen.RUNNING:
            self._found_running(entry, job)
        else:
            return
        self.entries[job_id] = entry

    def _take(self, entry: Entry, job: SlurmJob | None) -> None:
        """One job against what is wanted of it."""
        seen = seen_of(job)
        if seen is Seen.MISSING:
            entry.misses += 1
            if entry.misses < LOOKS_MISSING:
                return
        else:
            entry.misses, entry.job = 0, job
        action = _TABLE.get((entry.wanted, seen))
        if action is not None:
            action(self, entry, job)

    # --- in line

    def _hold(self, entry: Entry, job: SlurmJob | None) -> None:
        """Lazerd's own hold, no trace of the last start. A hold of the user stays the user's.

        Slurm does not look at the dependency of a job that is held, so one that has a dependency
        is not held, but waits behind a begin time until that is settled.
        """
        assert job is not None
        mark = mark_of(job.admin_comment)
        is_users = mark.kind is Marked.NOT or (
            mark.kind in USERS_HOLD and job.reason == "JobHeldUser"
        )
        if entry.job_id in self._dependencies.owed or (job.is_held and is_users):
            return
        target = str(job.array_id) if job.tasks else entry.job_id
        if job.dependency:
            if mark.kind is not Marked.WAIT:
                self._order(orders.wait(target, replace(mark, kind=Marked.WAIT)))
        elif job.tasks and job.is_held:
            return  # the plugin's hold of a whole array: a hold for each task would split it
        elif not job.is_held or mark.kind is not Marked.LINE:
            self._order(_holding(target, job))

    def _started_unasked(self, entry: Entry, job: SlurmJob | None) -> None:
        """Somebody else released it: it runs where Slurm has put it."""
        assert job is not None
        self._reports.append(Withdrawn(entry.job_id))
        self._found_running(entry, job)

    def _found_running(self, entry: Entry, job: SlurmJob) -> None:
        """It counts with the GPUs that it really has."""
        spec, signal_number = spec_of(job, entry.job_id, self._nodes.widest, self.controls)
        self._turn(entry, Wanted.RUN, self._now_s)
        entry.began, entry.restarts, entry.is_guest = True, job.restarts, True
        entry.placement = self._placement_of(job)
        spec = replace(spec, gpus=sum(gpus for _, gpus in entry.placement) or spec.gpus)
        self._reports.append(
            Running(spec, entry.placement, where=_where(job), signal_number=signal_number)
        )

    def _withdrawn(self, entry: Entry, job: SlurmJob | None) -> None:
        self._turn(entry, Wanted.OVER, self._now_s)
        self._reports.append(Withdrawn(entry.job_id))

    # --- to run

    def _begin(self, entry: Entry, job: SlurmJob | None) -> None:
        """Released where it was placed, unless it has been; or put back by somebody else."""
        assert job is not None
        if entry.was_put_back:
            self._over(entry, None, "requeued, not by lazerd")
            self._hold(entry, job)
            return
        mark = mark_of(job.admin_comment)
        nodes = self._roster.nodes_of(entry.placement)
        own = _has_own_nodes(job)
        pin = () if own or len(nodes) != job.node_count else nodes
        is_pinned = not pin or set(hosts_of(job.required_nodes)) == set(pin)
        if mark.kind is Marked.START and is_pinned and not job.is_held:
            entry.unplaced = f"{entry.job_id}: {job.reason or 'waits for Slurm'}"
            return
        if entry.restarts is None:
            entry.restarts = job.restarts
        start = Mark(Marked.START, job.restarts, mark.rest, own)
        self._order(orders.begin(entry.job_id, pin, start))

    def _began(self, entry: Entry, job: SlurmJob | None) -> None:
        assert job is not None
        if entry.began:
            return
        entry.began, entry.restarts, entry.unplaced = True, job.restarts, ""
        self._reports.append(Began(entry.job_id, _where(job)))

    def _ended(self, entry: Entry, job: SlurmJob | None) -> None:
        """By itself. One that came and went between two looks has begun all the same."""
        if not entry.began and job is not None and job.nodes:
            self._reports.append(Began(entry.job_id, _where(job)))
        code, detail = _exit_of(job)
        self._over(entry, code, detail)

    def _over(self, entry: Entry, code: int | None, detail: str) -> None:
        self._turn(entry, Wanted.OVER, self._now_s)
        self._reports.append(Ended(entry.job_id, code, detail))
        if entry.is_guest:
            del self.entries[entry.job_id]  # the daemon has no record of it to forget

    # --- to leave

    def _send_off(self, entry: Entry, job: SlurmJob | None) -> None:
        """The signal once, and when the grace is over slurmctld does the rest."""
        assert job is not None
        mark = mark_of(job.admin_comment)
        is_marked = mark.kind is Marked.LEAVE
        if is_marked and self._now_s >= mark.number + entry.grace_s:
            entry.killed = True
            self._order(orders.requeue(entry.job_id))
        elif not is_marked or not entry.signalled:
            at_s = mark.number if is_marked else int(self._now_s)
            entry.signalled = True
            leave = Mark(Marked.LEAVE, at_s, mark.rest, _has_own_nodes(job))
            self._order(orders.tell(entry.job_id, entry.signal_number, leave))

    def _left(self, entry: Entry, job: SlurmJob | None) -> None:
        """It ended: after the signal it goes back in line, before it was its own end."""
        assert job is not None
        told = entry.signalled or mark_of(job.admin_comment).kind is Marked.LEAVE
        if told and job.state not in OWN_ENDS:
            self._order(orders.requeue(entry.job_id))
        else:
            self._ended(entry, job)

    def _gone(self, entry: Entry, job: SlurmJob | None) -> None:
        """In line again and held, its nodes done with it: seen gone. Not held, it could start."""
        assert job is not None
        if not job.is_held:
            self._order(_holding(entry.job_id, job))
            return
        killed = entry.killed
        self._turn(entry, Wanted.LINE, self._now_s)
        entry.placement, entry.began, entry.restarts = (), False, None
        self._reports.append(Gone(entry.job_id, killed=killed))
        self._hold(entry, job)

    def _departed(self, entry: Entry, job: SlurmJob | None) -> None:
        """Gone for good."""
        code, _ = _exit_of(job)
        self._turn(entry, Wanted.OVER, self._now_s)
        self._reports.append(Gone(entry.job_id, code))

    def _wait(self, entry: Entry, job: SlurmJob | None) -> None:
        """Slurm ends its processes; not for ever."""
        controls = self.controls
        limit_s = entry.grace_s + controls.kill_wait_s + controls.unkillable_s + SPARE_S
        if self._now_s - entry.since_s > limit_s and not entry.is_stuck:
            assert job is not None
            entry.is_stuck = True
            where = ",".join(job.nodes) or "its nodes"
            self._reports.append(
                Stuck(entry.job_id, f"{where} is still completing after {limit_s:g} s")
            )

    def _forget(self, entry: Entry, job: SlurmJob | None) -> None:
        del self.entries[entry.job_id]

    def _cancel(self, entry: Entry, job: SlurmJob | None) -> None:
        self._order(orders.cancel(entry.job_id))

    # --- who may start

    def _judge(self, steered: dict[str, SlurmJob]) -> None:
        """Which jobs in line may start. An array lets only so many of its tasks."""
        active = Counter(_array_of(e) for e in self.entries.values() if e.holds)
        for entry in self.entries.values():
            job = steered.get(entry.job_id)
            if entry.wanted is not Wanted.LINE or job is None or not job.is_pending:
                continue
            owed = self._dependencies.owed.get(entry.job_id)
            why = f"Dependency: {owed}" if owed else why_not_eligible(job, self._now_s)
            array = _array_of(entry)
            if not why and array and job.throttle and active[array] >= job.throttle:
                why = "JobArrayTaskLimit"
            active[array] += not why
            if bool(why) == entry.is_eligible:
                entry.is_eligible = not why
                report = NotEligible(entry.job_id, why) if why else Eligible(entry.job_id)
                self._reports.append(report)

    # ---

    def _placement_of(self, job: SlurmJob) -> Placement:
        """Where it runs."""
        found = []
        for held in job.held:
            number = self._roster.number(held.node)
            if number is not None:
                found.append((number, held.gpus))
        return tuple(found)

    def _turn(self, entry: Entry, wanted: Wanted, now_s: float) -> None:
        entry.wanted, entry.since_s = wanted, now_s
        entry.signalled, entry.killed, entry.is_stuck, entry.unplaced = False, False, False, ""

    def _order(self, order: Order) -> None:
        self._orders[order] = None


Action = Callable[[Steering, Entry, SlurmJob | None], None]

_TABLE: dict[tuple[Wanted, Seen], Action] = {
    (Wanted.LINE, Seen.PENDING): Steering._hold,
    (Wanted.LINE, Seen.RUNNING): Steering._started_unasked,
    (Wanted.LINE, Seen.OVER): Steering._withdrawn,
    (Wanted.LINE, Seen.MISSING): Steering._withdrawn,
    (Wanted.RUN, Seen.PENDING): Steering._begin,
    (Wanted.RUN, Seen.RUNNING): Steering._began,
    (Wanted.RUN, Seen.OVER): Steering._ended,
    (Wanted.RUN, Seen.MISSING): Steering._ended,
    (Wanted.LEAVE, Seen.PENDING): Steering._gone,
    (Wanted.LEAVE, Seen.RUNNING): Steering._send_off,
    (Wanted.LEAVE, Seen.COMPLETING): Steering._wait,
    (Wanted.LEAVE, Seen.OVER): Steering._left,
    (Wanted.LEAVE, Seen.MISSING): Steering._departed,
    (Wanted.END, Seen.PENDING): Steering._cancel,
    (Wanted.END, Seen.RUNNING): Steering._cancel,
    (Wanted.END, Seen.COMPLETING): Steering._wait,
    (Wanted.END, Seen.OVER): Steering._departed,
    (Wanted.END, Seen.MISSING): Steering._departed,
    (Wanted.OVER, Seen.PENDING): Steering._hold,
    (Wanted.DROP, Seen.PENDING): Steering._cancel,
    (Wanted.DROP, Seen.RUNNING): Steering._cancel,
    (Wanted.DROP, Seen.OVER): Steering._forget,
    (Wanted.DROP, Seen.MISSING): Steering._forget,
}
"""The picture above, as data; where there is nothing, nothing is done."""


def _where(job: SlurmJob) -> str:
    """Nodes and GPUs, for people."""
    parts = [
        f"{held.node} GPU {','.join(map(str, held.indexes))}"
        if held.indexes
        else f"{held.node}, {held.gpus} GPUs"
        for held in job.held
    ]
    return "; ".join(parts) or ",".join(job.nodes)


def _exit_of(job: SlurmJob | None) -> tuple[int | None, str]:
    """The exit code as a shell says it, and Slurm's word where it is more than that."""
    if job is None:
        return None, "Slurm no longer knows the job"
    code, signal_number = divmod(job.exit_status, 256)
    detail = "" if job.state == "COMPLETED" else job.state
    return (128 + signal_number % 128 if signal_number else code), detail


def _has_own_nodes(job: SlurmJob) -> bool:
    """Whether its user names the nodes: then a pin of lazerd's would take that away."""
    mark = mark_of(job.admin_comment)
    return mark.own or (bool(job.required_nodes) and mark.kind not in (Marked.START, Marked.LEAVE))


def _holding(target: str, job: SlurmJob) -> Order:
    """Lazerd's hold, with the nodes that lazerd has named for the last start taken away again."""
    mark = mark_of(job.admin_comment)
    own = _has_own_nodes(job)
    is_pinned = mark.kind in (Marked.START, Marked.LEAVE) and not own
    line = Mark(Marked.LINE, rest=mark.rest, own=own)
    if mark.kind is Marked.WAIT:
        return orders.settled(target, line)
    return orders.hold(target, line) if is_pinned else orders.keep(target, line)


def _array_of(entry: Entry) -> str:
    array, _, task = entry.job_id.partition("_")
    return array if task else ""
