"""Which jobs lazerd steers, why one may not start yet, and what the engine is told of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lazerd.backend.slurm.controls import Controls
from lazerd.backend.slurm.marks import Marked, mark_of
from lazerd.backend.slurm.records import SlurmJob
from lazerd.backend.slurm.tasks import tasks_of
from lazerd.backend.slurm.wishes import wishes_of
from lazerd.model.job import JobSpec

STOPPED_REASONS = frozenset(
    {
        "DependencyNeverSatisfied",
        "JobLaunchFailure",
        "LaunchFailedRequeuedHeld",
        "launch_failed_requeued_held",
        "launch failed requeued held",
        "BadConstraints",
        "DeadLine",
        "ReservationDeleted",
        "InvalidAccount",
        "InvalidQOS",
        "AccountNotAllowed",
        "QOSNotAllowed",
        "PartitionDown",
        "PartitionInactive",
    }
)
"""Reasons of a pending job that Slurm gives whoever holds it: it would not start if released."""

USERS_HOLD = (Marked.LINE, Marked.WAIT, Marked.NOT)
"""Marks with which JobHeldUser is the user's own doing: lazerd's hold is JobHeldAdmin, the plugin's
has the mark NEW, and a requeue into the hold keeps the mark of the start."""


def id_of(job: SlurmJob) -> str:
    """Its name on Slurm's command lines, the same before and after a task gets its own record."""
    return str(job.number) if job.task is None else f"{job.array_id}_{job.task}"


def has_own_nodes(job: SlurmJob) -> bool:
    """Whether its user names the nodes: then a pin of lazerd's would take that away."""
    mark = mark_of(job.admin_comment)
    is_pinned = mark.kind in (Marked.START, Marked.LEAVE)
    return mark.own or (bool(job.required_nodes) and not is_pinned)


def each_task(jobs: Iterable[SlurmJob]) -> Iterator[tuple[str, SlurmJob]]:
    """Every job, and every task of an array, with the record that stands for it."""
    for job in jobs:
        if job.array_id and job.tasks:
            for task in tasks_of(job.tasks):
                yield f"{job.array_id}_{task}", job
        else:
            yield id_of(job), job


def why_not_steered(job: SlurmJob, partitions: frozenset[str]) -> str:
    """Why lazerd leaves a job to Slurm; "" when it does not. What it steers it must be able to
    requeue, and must know the GPUs of."""
    rules = (
        (not partitions.intersection(job.partitions), "it is in another partition"),
        (job.het_id != 0, "it is part of a heterogeneous job"),
        (not job.is_batch, "it is interactive"),
        (not job.can_requeue, "it cannot be requeued (--no-requeue)"),
        (job.reservation != "", f"it runs in the reservation {job.reservation}"),
        (job.gpus == 0, "it asks for no GPU"),
    )
    return next((why for applies, why in rules if applies), "")


def why_not_eligible(job: SlurmJob, now_s: float) -> str:
    """Why a job in line may not start, for reasons that lie with Slurm or its user; "" if it may.

    A held job shows its hold as reason, so dependencies and begin times are read from their fields.
    Slurm takes a dependency that is fulfilled out of its field, though not while the job is held
    (`Steering._hold`). A job that was requeued shows Slurm's own delay as begin time: that is not
    its user's.
    """
    kind = mark_of(job.admin_comment).kind
    if job.dependency:
        return f"Dependency: {job.dependency}"
    if job.reason in STOPPED_REASONS:
        return job.reason
    if job.is_held and job.reason == "JobHeldUser" and kind in USERS_HOLD:
        return "JobHeldUser"
    if job.is_held and job.reason == "JobHeldAdmin" and kind is Marked.NOT:
        return "JobHeldAdmin"
    if kind is Marked.WAIT:
        return ""
    if job.restarts == 0 and job.begins_s is not None and job.begins_s > now_s + 1:
        return "BeginTime" if job.is_held or job.reason == "BeginTime" else ""
    return ""


def spec_of(job: SlurmJob, job_id: str, widest: int, controls: Controls) -> tuple[JobSpec, int]:
    """What the engine is told of a job, and the signal that asks it to go.

    The engine counts GPUs, and gives a gang that fits on one node one node. A job of several nodes
    is therefore counted with whole nodes of `widest` GPUs.
    """
    wishes, _ = wishes_of(job.comment)
    spec = JobSpec(
        job_id=job_id,
        gpus=job.gpus if job.node_count == 1 else job.node_count * max(widest, job.gpus_per_node),
        submitted_s=job.submitted_s,
        user=job.user,
        name=job.name,
        job_class=wishes.job_class,
        priority=wishes.priority,
        estimate_s=job.limit_s if wishes.estimate is None else wishes.estimate,
        setup_s=wishes.setup,
        checkpoint_s=wishes.checkpoint,
        grace_s=controls.kill_wait_s if wishes.grace is None else wishes.grace,
    )
    return spec, 15 if wishes.signal is None else wishes.signal
