"""What is done to a job, as command lines. Pure.

Each can be given again: what Slurm has already done it does not do twice. That is how an order
survives a slurmctld that was down, or forgot it in a crash: it is derived anew from the next look.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lazerd.backend.slurm.hosts import joined
from lazerd.backend.slurm.marks import Mark

Command = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Order:
    """Commands to run one after the other, for one job; `what` is for people and for telling orders
    apart."""

    job_id: str
    what: str
    commands: tuple[Command, ...]


def hold(job_id: str, mark: Mark) -> Order:
    """In line: only lazerd starts it, on any node. Done by an operator it is JobHeldAdmin, which the
    user cannot release."""
    return Order(
        job_id, "hold", (_update(job_id, "Priority=0", "ReqNodeList=", f"AdminComment={mark}"),)
    )


def keep(job_id: str, mark: Mark) -> Order:
    """The same for a job with a node list of its own, which stays."""
    return Order(job_id, "hold", (_update(job_id, "Priority=0", f"AdminComment={mark}"),))


def begin(job_id: str, nodes: Sequence[str], mark: Mark) -> Order:
    """Released for one start on these nodes; () leaves the choice to Slurm.

    `StartTime=now` takes away the two minutes that a requeued job has to wait (its credential's
    life, AuthInfo's cred_expire, or requeue_delay); slurmd takes the new credential at once.
    """
    pin = (f"ReqNodeList={joined(nodes)}",) if nodes else ()
    update = _update(job_id, "StartTime=now", *pin, f"AdminComment={mark}")
    return Order(job_id, "begin", (update, ("scontrol", "release", job_id)))


def requeue(job_id: str) -> Order:
    """Out, and held in line, in one step of slurmctld: TERM to all of it, KillWait, KILL.

    Not `requeue`: that one would start again at once where nobody else is faster.
    """
    return Order(job_id, "requeue", (("scontrol", "requeuehold", job_id),))


def tell(job_id: str, signal_number: int, mark: Mark) -> Order:
    """A signal to every step, the batch script and all their children; marked before, so that
    lazerd's death cannot make its end a real one."""
    return Order(
        job_id,
        "tell",
        (
            _update(job_id, f"AdminComment={mark}"),
            ("scancel", f"--signal={signal_number}", "--full", job_id),
        ),
    )


def cancel(job_id: str) -> Order:
    """Ended for good."""
    return Order(job_id, "cancel", (("scancel", job_id),))


def release(job_id: str, mark: Mark) -> Order:
    """Left to Slurm: lazerd does not steer it, and the hold was not its user's."""
    return Order(
        job_id,
        "release",
        (_update(job_id, f"AdminComment={mark.rest}"), ("scontrol", "release", job_id)),
    )


def depend(job_id: str, dependency: str) -> Order:
    """Its dependency back: what it waits for has not ended but goes on later."""
    return Order(job_id, "depend", (_update(job_id, f"Dependency={dependency}"),))


def _update(job_id: str, *settings: str) -> Command:
    return ("scontrol", "update", f"JobId={job_id}", *settings)
