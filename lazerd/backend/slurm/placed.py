"""A job that was given GPUs: released for one start, seen to run, seen to end. Pure."""

from __future__ import annotations

from lazerd.backend.protocol import Began, Ended
from lazerd.backend.slurm import orders
from lazerd.backend.slurm.entry import Entry, Wanted
from lazerd.backend.slurm.glance import Glance
from lazerd.backend.slurm.hosts import hosts_of
from lazerd.backend.slurm.marks import Mark, Marked, mark_of
from lazerd.backend.slurm.records import SlurmJob
from lazerd.backend.slurm.standing import has_own_nodes
from lazerd.backend.slurm.waiting import hold
from lazerd.backend.slurm.words import exit_of, where_of

PATIENCE_S = 30.0
"""So long may Slurm take to start a job that it was let. lazerd counts GPUs only: CPUs, memory, a
limit or a reservation to come can be in the way."""

SHY_S = 60.0
"""After that the job is in line anew, and may not start for so long: others go first."""


def begin(glance: Glance, entry: Entry, job: SlurmJob | None) -> None:
    """Released where it was placed, unless it has been."""
    assert job is not None
    if entry.was_put_back:
        _in_line_anew(glance, entry, job, "requeued, not by lazerd")
    elif not _is_released(glance, entry, job):
        _release(glance, entry, job)
    elif entry.released_s is None:
        entry.released_s = glance.now_s  # by the daemon before this one
    elif glance.now_s - entry.released_s > PATIENCE_S:
        entry.shy = (glance.now_s + SHY_S, job.reason or "Resources")
        _in_line_anew(glance, entry, job, f"Slurm did not start it: {job.reason}")


def _is_released(glance: Glance, entry: Entry, job: SlurmJob) -> bool:
    nodes = _pin(glance, entry, job)
    is_pinned = not nodes or set(hosts_of(job.required_nodes)) == set(nodes)
    return mark_of(job.admin_comment).kind is Marked.START and is_pinned and not job.is_held


def _release(glance: Glance, entry: Entry, job: SlurmJob) -> None:
    if entry.restarts is None:
        entry.restarts = job.restarts
    entry.released_s = glance.now_s
    rest = mark_of(job.admin_comment).rest
    start = Mark(Marked.START, job.restarts, rest, has_own_nodes(job))
    glance.order(orders.begin(entry.job_id, _pin(glance, entry, job), start))


def _pin(glance: Glance, entry: Entry, job: SlurmJob) -> tuple[str, ...]:
    """The nodes to name; () where the user has, or where Slurm wants another number of them."""
    nodes = glance.roster.nodes_of(entry.placement)
    return () if has_own_nodes(job) or len(nodes) != job.node_count else nodes


def _in_line_anew(glance: Glance, entry: Entry, job: SlurmJob, why: str) -> None:
    """For the daemon this placement has ended; once it has forgotten the job, it hears anew."""
    over(glance, entry, None, why)
    hold(glance, entry, job)


def began(glance: Glance, entry: Entry, job: SlurmJob | None) -> None:
    """Seen to run."""
    assert job is not None
    if not entry.began:
        entry.began, entry.restarts = True, job.restarts
        glance.report(Began(entry.job_id, where_of(job)))


def ended(glance: Glance, entry: Entry, job: SlurmJob | None) -> None:
    """By itself. One that came and went between two looks has begun all the same."""
    if not entry.began and job is not None and job.nodes:
        glance.report(Began(entry.job_id, where_of(job)))
    code, detail = exit_of(job)
    over(glance, entry, code, detail)


def over(glance: Glance, entry: Entry, code: int | None, detail: str) -> None:
    """Report the end. Of a guest the daemon has no record that it would forget."""
    glance.turn(entry, Wanted.OVER)
    glance.report(Ended(entry.job_id, code, detail))
    if entry.is_guest:
        glance.over.append(entry.job_id)
