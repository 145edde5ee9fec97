"""A job in line: held by lazerd, or by its user, or waiting for what it depends on. Pure."""

from __future__ import annotations

from dataclasses import replace

from lazerd.backend.protocol import Running, Withdrawn
from lazerd.backend.slurm import orders
from lazerd.backend.slurm.entry import Entry, Wanted
from lazerd.backend.slurm.glance import Glance
from lazerd.backend.slurm.marks import Mark, Marked, mark_of
from lazerd.backend.slurm.orders import Order
from lazerd.backend.slurm.records import SlurmJob
from lazerd.backend.slurm.standing import USERS_HOLD, has_own_nodes, spec_of
from lazerd.backend.slurm.words import where_of


def hold(glance: Glance, entry: Entry, job: SlurmJob | None) -> None:
    """Lazerd's own hold, no trace of the last start. A hold of the user stays the user's.

    Slurm does not look at the dependency of a job that is held, so one that has a dependency is not
    held, but waits behind a begin time until that is settled.
    """
    assert job is not None
    mark = mark_of(job.admin_comment)
    is_users = mark.kind is Marked.NOT or (mark.kind in USERS_HOLD and job.reason == "JobHeldUser")
    if entry.job_id in glance.owed or (job.is_held and is_users):
        return
    target = str(job.array_id) if job.tasks else entry.job_id
    if job.dependency:
        if mark.kind is not Marked.WAIT:
            glance.order(orders.wait(target, replace(mark, kind=Marked.WAIT)))
    elif job.tasks and job.is_held:
        return  # the plugin's hold of a whole array: a hold for each task would split it
    elif not job.is_held or mark.kind is not Marked.LINE:
        glance.order(holding(target, job))


def holding(target: str, job: SlurmJob) -> Order:
    """Lazerd's hold, with the nodes that lazerd has named for the last start taken away again."""
    mark = mark_of(job.admin_comment)
    own = has_own_nodes(job)
    line = Mark(Marked.LINE, rest=mark.rest, own=own)
    if mark.kind is Marked.WAIT:
        return orders.settled(target, line)
    is_pinned = mark.kind in (Marked.START, Marked.LEAVE) and not own
    return orders.hold(target, line) if is_pinned else orders.keep(target, line)


def started_unasked(glance: Glance, entry: Entry, job: SlurmJob | None) -> None:
    """Somebody else released it: it runs where Slurm has put it."""
    assert job is not None
    glance.report(Withdrawn(entry.job_id))
    found_running(glance, entry, job)


def found_running(glance: Glance, entry: Entry, job: SlurmJob) -> None:
    """A guest: it counts with the GPUs that it really has."""
    spec, signal_number = spec_of(job, entry.job_id, glance.widest, glance.controls)
    glance.turn(entry, Wanted.RUN)
    entry.began, entry.restarts, entry.is_guest = True, job.restarts, True
    entry.placement = glance.placement_of(job)
    spec = replace(spec, gpus=sum(gpus for _, gpus in entry.placement) or spec.gpus)
    glance.report(Running(spec, entry.placement, where=where_of(job), signal_number=signal_number))


def withdrawn(glance: Glance, entry: Entry, job: SlurmJob | None) -> None:
    """Cancelled by somebody else."""
    glance.turn(entry, Wanted.OVER)
    glance.report(Withdrawn(entry.job_id))


def cancel(glance: Glance, entry: Entry, job: SlurmJob | None) -> None:
    """Ended for good, in line or running."""
    glance.order(orders.cancel(entry.job_id))


def forget(glance: Glance, entry: Entry, job: SlurmJob | None) -> None:
    """Nobody wants to hear of it any more."""
    glance.over.append(entry.job_id)
