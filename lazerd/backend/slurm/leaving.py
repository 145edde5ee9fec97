"""A job that was told to go: the signal, its grace, the requeue, and seen gone. Pure."""

from __future__ import annotations

from math import ceil

from lazerd.backend.protocol import Gone, Stuck
from lazerd.backend.slurm import orders
from lazerd.backend.slurm.entry import Entry, Wanted
from lazerd.backend.slurm.glance import Glance
from lazerd.backend.slurm.marks import Mark, Marked, mark_of
from lazerd.backend.slurm.placed import ended
from lazerd.backend.slurm.records import SlurmJob
from lazerd.backend.slurm.standing import has_own_nodes
from lazerd.backend.slurm.waiting import hold, holding
from lazerd.backend.slurm.words import exit_of

SPARE_S = 5.0
"""Added to Slurm's own limits before a job is called stuck."""

OWN_ENDS = frozenset({"CANCELLED", "TIMEOUT", "DEADLINE"})
"""Ends that are a job's own though it was told to go: it would not go on if it was put back."""


def send_off(glance: Glance, entry: Entry, job: SlurmJob | None) -> None:
    """The signal once, and when the grace is over slurmctld does the rest."""
    assert job is not None
    mark = mark_of(job.admin_comment)
    is_marked = mark.kind is Marked.LEAVE
    if is_marked and glance.now_s >= mark.number + entry.grace_s:
        entry.killed = True
        glance.order(orders.requeue(entry.job_id))
    elif not is_marked or not entry.signalled:
        at_s = mark.number if is_marked else ceil(glance.now_s)  # never less than the grace
        entry.signalled = True
        leave = Mark(Marked.LEAVE, at_s, mark.rest, has_own_nodes(job))
        glance.order(orders.tell(entry.job_id, entry.signal_number, leave))


def left(glance: Glance, entry: Entry, job: SlurmJob | None) -> None:
    """It ended: after the signal it goes back in line, before it was its own end."""
    assert job is not None
    told = entry.signalled or mark_of(job.admin_comment).kind is Marked.LEAVE
    if told and job.state not in OWN_ENDS:
        glance.order(orders.requeue(entry.job_id))
    else:
        ended(glance, entry, job)


def gone(glance: Glance, entry: Entry, job: SlurmJob | None) -> None:
    """In line again and held, its nodes done with it: seen gone. Not held, it could start."""
    assert job is not None
    if not job.is_held:
        glance.order(holding(entry.job_id, job))
        return
    glance.report(Gone(entry.job_id, killed=entry.killed))
    glance.turn(entry, Wanted.LINE)
    entry.placement, entry.began, entry.restarts = (), False, None
    hold(glance, entry, job)


def departed(glance: Glance, entry: Entry, job: SlurmJob | None) -> None:
    """Gone for good."""
    code, _ = exit_of(job)
    glance.turn(entry, Wanted.OVER)
    glance.report(Gone(entry.job_id, code))


def wait(glance: Glance, entry: Entry, job: SlurmJob | None) -> None:
    """Slurm ends its processes; not for ever."""
    assert job is not None
    controls = glance.controls
    limit_s = entry.grace_s + controls.kill_wait_s + controls.unkillable_s + SPARE_S
    if glance.now_s - entry.since_s > limit_s and not entry.is_stuck:
        entry.is_stuck = True
        where = ",".join(job.nodes) or "its node"
        glance.report(Stuck(entry.job_id, f"{where} still completes after {limit_s:g} s"))
