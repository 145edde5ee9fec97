"""What can be asked of the daemon: a table of verbs, each with who asks and its arguments."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from lazerd.backend.protocol import Launch
from lazerd.conduct.conductor import Conductor
from lazerd.config import Config, signal_number
from lazerd.control.answers import Answers
from lazerd.control.asker import Asker
from lazerd.errors import LazerError, NoSuchJob, NotAllowed, UsageError, WrongPhase
from lazerd.memory.book import Record
from lazerd.memory.book import decode as decode_record
from lazerd.memory.restore import row_of
from lazerd.memory.store import Store
from lazerd.model.events import Cancelled, Event, Held, Released, SetupEnded, Submitted
from lazerd.model.job import JobSpec

HISTORY_AT_MOST = 10_000


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `lazer submit` says. Times in seconds; null: what the configuration says."""

    command: tuple[str, ...]
    directory: str
    environment: dict[str, str] = {}
    gpus: int = 1
    name: str = ""
    job_class: str = ""
    signal: str = ""
    grace_s: float | None = None
    estimate_s: float | None = None
    setup_s: float | None = None
    checkpoint_s: float | None = None
    output: str = ""
    error: str = ""


@dataclass
class Verbs:
    """The verbs of one daemon. Raises `LazerError` for what it cannot do."""

    config: Config
    conductor: Conductor
    answers: Answers
    store: Store
    version: str
    gpus: Callable[[], int]
    """How many GPUs there are, those out of service counted: more cannot be asked for."""
    next_number: int
    submits_here: bool

    def table(self) -> dict[str, Callable[..., Awaitable[Any]]]:
        """Name -> function."""
        return {
            "submit": self.submit,
            "queue": self.queue,
            "explain": self.explain,
            "cancel": self.cancel,
            "hold": self.hold,
            "release": self.release,
            "working": self.working,
            "nodes": self.nodes,
            "history": self.history,
            "status": self.status,
        }

    async def submit(self, asker: Asker, **wanted: Any) -> Any:
        """A new job; answers its id once it is stored."""
        self._may_submit(asker, wanted)
        number, self.next_number = self.next_number, self.next_number + 1
        record = _record(self.config, asker, str(number), number, wanted, self.conductor.now_s())
        if self.conductor.trouble is not None:
            raise self.conductor.trouble
        # Stored before the engine hears of it: without room for it nobody is promised anything.
        put = partial(self.store.put, [row_of(record)])
        await self.conductor.with_store(put)
        await self.conductor.tell(Submitted(record.spec), records=[record])
        return {"job": record.job_id}

    async def queue(self, asker: Asker) -> Any:
        """The jobs that live."""
        return self.answers.queue(asker)

    async def explain(self, asker: Asker, job: str) -> Any:
        """Everything about one job."""
        record = await self._record(asker, job)
        decisions = await self.conductor.with_store(lambda: self.store.decisions(job))
        return self.answers.explain(record, decisions)

    async def cancel(self, asker: Asker, jobs: Sequence[str]) -> Any:
        """End jobs, or take them out of the line."""
        return await self._change(asker, jobs, Cancelled, "has ended, or was cancelled before")

    async def hold(self, asker: Asker, jobs: Sequence[str]) -> Any:
        """Pending jobs shall not start."""
        return await self._change(asker, jobs, Held, "is not pending: only such a job can be held")

    async def release(self, asker: Asker, jobs: Sequence[str]) -> Any:
        """Held jobs may start."""
        return await self._change(asker, jobs, Released, "is not held")

    async def working(self, asker: Asker, job: str) -> Any:
        """The job says that its set-up is over; said again, nothing happens."""
        record = self._living(asker, job)
        if record.state == "setup":
            record.evidence = "it said so (lazer working)"
            await self.conductor.tell(SetupEnded(job))
        elif record.state != "working":
            raise WrongPhase(f"job {job} is {record.state}: only one that runs can be working")
        return None

    async def nodes(self, asker: Asker) -> Any:
        """The nodes."""
        return self.answers.nodes()

    async def history(self, asker: Asker, limit: int = 100) -> Any:
        """Jobs that have ended, the latest first."""
        if not 0 < limit <= HISTORY_AT_MOST:
            raise UsageError(f"the limit is from 1 to {HISTORY_AT_MOST}, not {limit}")
        uid = None if asker.is_operator else asker.uid
        rows = await self.conductor.with_store(lambda: self.store.ended(limit, uid))
        return self.answers.history(rows)

    async def status(self, asker: Asker) -> Any:
        """How everything is."""
        return self.answers.status(self.version)

    # --- small steps ---------------------------------------------------------------------------

    def _may_submit(self, asker: Asker, wanted: dict[str, Any]) -> None:
        if not self.submits_here:
            raise UsageError("jobs are submitted with sbatch here; lazerd steers them")
        if os.geteuid() not in (0, asker.uid):
            raise NotAllowed("this lazerd is not root's: it starts the jobs of its own user only")
        gpus, there_are = wanted.get("gpus", 1), self.gpus()
        if not isinstance(gpus, int) or gpus < 1:
            raise UsageError("a job needs at least one GPU")
        if gpus > there_are:
            raise UsageError(f"the job asks for {gpus} GPUs; there are {there_are}")

    async def _change(
        self, asker: Asker, jobs: Sequence[str], event: Callable[[str], Event], why_not: str
    ) -> Any:
        """One event for each job; then an error that names those for which it could not be."""
        living, failed = [], list[LazerError]()
        for job in jobs:
            try:
                living.append(self._living(asker, job).job_id)
            except LazerError as error:
                failed.append(error)
        could = await self.conductor.tell(*(event(job) for job in living))
        late = [job for job, was_possible in zip(living, could, strict=True) if not was_possible]
        failed += [WrongPhase(f"job {job} {why_not}") for job in late]
        if failed:
            raise type(failed[0])("; ".join(map(str, failed)))
        return None

    def _living(self, asker: Asker, job: str) -> Record:
        record = self.conductor.book.records.get(job)
        if record is None:
            raise NoSuchJob(f"there is no job {job} that has not ended")
        return _permitted(asker, record)

    async def _record(self, asker: Asker, job: str) -> Record:
        if job in self.conductor.book.records:
            return self._living(asker, job)
        row = await self.conductor.with_store(lambda: self.store.job(job))
        if row is None:
            raise NoSuchJob(f"there is no job {job}")
        return _permitted(asker, decode_record(row.record))


def _permitted(asker: Asker, record: Record) -> Record:
    if not asker.is_operator and record.uid != asker.uid:
        raise NotAllowed(f"job {record.job_id} belongs to another user")
    return record


def _record(
    config: Config, asker: Asker, job_id: str, number: int, wanted: dict[str, Any], now_s: float
) -> Record:
    """The record of a new job. Raises `UsageError`."""
    try:
        order = msgspec.convert(wanted, Order)
        signal = signal_number(order.signal or config.jobs.signal)
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageError(f"submit: {error}") from None
    if not order.command or not order.command[0]:
        raise UsageError("submit: there is no command")
    grace_s = _seconds(order.grace_s, config.jobs.grace)
    spec = JobSpec(
        job_id,
        order.gpus,
        now_s,
        user=asker.name,
        name=order.name or os.path.basename(order.command[0]),
        job_class=order.job_class,
        priority=_priority(config, order.job_class),
        estimate_s=order.estimate_s,
        setup_s=_seconds(order.setup_s, config.jobs.setup),
        checkpoint_s=_seconds(order.checkpoint_s, config.jobs.checkpoint),
        grace_s=grace_s or 0.0,
    )
    launch = Launch(
        job_id,
        order.command,
        order.directory,
        order.environment,
        order.output or config.jobs.output,
        order.error,
        order.gpus,
        asker.uid,
        asker.gid,
        asker.groups(),
        signal,
        grace_s or 0.0,
    )
    return Record(
        number=number, uid=asker.uid, spec=spec, launch=launch, signal_number=signal, since_s=now_s
    )


def _seconds(said: float | None, configured: float | None) -> float | None:
    """What the submitter says, or else the configuration (a `Duration`, plain from here on)."""
    chosen = configured if said is None else said
    return None if chosen is None else float(chosen)


def _priority(config: Config, job_class: str) -> int:
    if not job_class or not config.jobs.classes:
        return 0
    if job_class not in config.jobs.classes:
        there_are = ", ".join(sorted(config.jobs.classes))
        raise UsageError(f"there is no class {job_class!r}; there are {there_are}")
    return config.jobs.classes[job_class]
