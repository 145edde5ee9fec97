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

FAR_AWAY = "now+3650days"
"""A begin time that does not come."""


@dataclass(frozen=True, slots=True)
class Order:
    """Commands to run one after the other, for one job; `what` tells orders apart.

    With `steps`, a command that lists the job's steps, either `with_steps` or `without` follows.
    """

    job_id: str
    what: str
    commands: tuple[Command, ...]
    steps: Command = ()
    with_steps: Command = ()
    without: Command = ()


def hold(job_id: str, mark: Mark) -> Order:
    """In line: only lazerd starts it, on any node. Done by an operator it is JobHeldAdmin, which
    the user cannot release."""
    return Order(
        job_id, "hold", (_update(job_id, "Priority=0", "ReqNodeList=", f"AdminComment={mark}"),)
    )


def keep(job_id: str, mark: Mark) -> Order:
    """The same for a job with a node list of its own, which stays."""
    return Order(job_id, "hold", (_update(job_id, "Priority=0", f"AdminComment={mark}"),))


def wait(job_id: str, mark: Mark) -> Order:
    """For its dependency, which Slurm does not look at while a job is held. The mark comes last:
    a job that is held and has it is held by its user."""
    return Order(
        job_id,
        "wait",
        (
            _update(job_id, f"StartTime={FAR_AWAY}"),
            ("scontrol", "release", job_id),
            _update(job_id, f"AdminComment={mark}"),
        ),
    )


def settled(job_id: str, mark: Mark) -> Order:
    """Its dependency is fulfilled: held, and no begin time."""
    return Order(
        job_id, "hold", (_update(job_id, "Priority=0", "StartTime=now", f"AdminComment={mark}"),)
    )


def begin(job_id: str, nodes: Sequence[str], mark: Mark) -> Order:
    """Released for one start on these nodes; () leaves the choice to Slurm.

    `StartTime=now` takes away the two minutes that a requeued job has to wait (its credential's
    life, AuthInfo's cred_expire, or requeue_delay); slurmd takes the new credential at once.
    """
    pin = (f"ReqNodeList={joined(nodes)}",) if nodes else ()
    update = _update(job_id, "StartTime=now", *pin, f"AdminComment={mark}")
    return Order(job_id, "begin", (update, ("scontrol", "release", job_id)))


def requeue(job_id: str) -> Order:
    """Out, and held in line, in one step of slurmctld; also for a job that has just ended.

    What still runs gets TERM, and KILL after KillWait. Not `requeue`: that job would start again at
    once where nobody else is faster.
    """
    return Order(job_id, "requeue", (("scontrol", "requeuehold", job_id),))


def tell(job_id: str, signal_number: int, mark: Mark) -> Order:
    """A signal to all that works; marked before, so that lazerd's death cannot make what follows a
    real end.

    A job with steps of its own (srun) gets it in the steps: srun itself, told with the batch
    script, would have its tasks killed at once. One without gets it in all processes of the
    script; its shell waits for them (job_submit.lua).
    """
    signal = f"--signal={signal_number}"
    return Order(
        job_id,
        "tell",
        (_update(job_id, f"AdminComment={mark}"),),
        steps=("squeue", "--steps", "--noheader", "--format=%i", f"--jobs={job_id}"),
        with_steps=("scancel", signal, job_id),
        without=("scancel", signal, "--full", job_id),
    )


def has_steps(answer: str) -> bool:
    """Whether a list of steps has more than those that every job has: `7.batch`, `7.extern`."""
    return any(line.rpartition(".")[2].isdigit() for line in answer.split())


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
