"""One replay: a trace, a cluster, and what is assumed of both. Enough to run it anywhere again."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

from lazerd.engine import Engine
from lazerd.model.cluster import Cluster
from lazerd.model.job import JobSpec
from lazerd.policy.names import Information, Policy, policy_named
from tools.replay.driver import Task
from tools.replay.errors import OptionError
from tools.replay.estimates import parse_estimates
from tools.replay.setups import parse_setup
from tools.replay.synthetic import generate
from tools.replay.traces import Selection, TraceJob, read
from tools.replay.traces.table import epoch_s

SYNTHETIC = "synthetic:"


@dataclass(frozen=True)
class Case:
    """Everything that a replay's result depends on, besides the policy. Times in seconds.

    `since` is a date or seconds; `node_gpus` 0 stands for one pool; `checkpoint_s` None for a
    preemption that loses no work. With `known_setups` the engine is told how long a job sets up,
    otherwise it learns from the set-ups that it sees.
    """

    trace: str
    gpus: int
    setup: str
    estimate: str = "oracle"
    format: str | None = None
    checkpoint_s: int | None = None
    grace_s: int = 0
    node_gpus: int = 0
    since: str | None = None
    min_gpus: int = 1
    limit: int | None = None
    compress: float = 1.0
    seed: int = 1
    known_setups: bool = False

    def tasks(self) -> tuple[list[Task], int]:
        """The jobs, and how many were left out because they never fit on the cluster.

        Raises TraceError, OptionError.
        """
        jobs = _jobs(self.trace, self.format, self._selection(), self.seed)
        setup = parse_setup(self.setup, self.seed)
        estimates = parse_estimates(self.estimate, self.seed)
        cluster = self.cluster()
        fits = {gpus: cluster.fits_empty(gpus) for gpus in {job.gpus for job in jobs}}
        tasks = [
            Task(
                self._spec(job, estimates.seconds(job), setup.seconds(job)),
                int(job.submit_s),
                int(job.duration_s),
                setup.seconds(job),
            )
            for job in jobs
            if fits[job.gpus]
        ]
        return tasks, len(jobs) - len(tasks)

    def _spec(self, job: TraceJob, estimate_s: float | None, setup_s: int) -> JobSpec:
        return JobSpec(
            job_id=job.id,
            gpus=job.gpus,
            submitted_s=float(job.submit_s),
            user=job.user,
            name=job.name,
            priority=job.priority,
            estimate_s=None if estimate_s is None else float(estimate_s),
            setup_s=float(setup_s) if self.known_setups else None,
            checkpoint_s=None if self.checkpoint_s is None else float(self.checkpoint_s),
            grace_s=float(self.grace_s),
        )

    def cluster(self) -> Cluster:
        """The cluster, empty. Raises OptionError."""
        if not self.node_gpus:
            return Cluster.pool(self.gpus)
        nodes, rest = divmod(self.gpus, self.node_gpus)
        if rest:
            raise OptionError(f"{self.gpus} GPUs are not whole nodes of {self.node_gpus}")
        return Cluster.nodes(nodes, self.node_gpus)

    def engine(self, policy: str) -> Engine:
        """An engine with nothing in it. Raises OptionError."""
        return Engine(self.cluster(), self.policy(policy))

    def policy(self, name: str) -> Policy:
        """The policy, with the information that there is. Raises OptionError."""
        try:
            return policy_named(name, self.information())
        except ValueError as error:
            raise OptionError(f"--policies: {error}") from error

    def information(self) -> Information:
        """Where the engine has durations from. Raises OptionError."""
        if parse_estimates(self.estimate, self.seed).history:
            return Information.HISTORY
        return Information.NONE if self.estimate == "none" else Information.GIVEN

    def label(self) -> str:
        """The trace, and what of it is replayed: `philly.csv.gz since 2017-10-06 compress 2`."""
        parts = [self.trace if self.trace.startswith(SYNTHETIC) else Path(self.trace).name]
        plain = Case(self.trace, self.gpus, self.setup)
        for name in ("since", "min_gpus", "limit", "compress"):
            value = getattr(self, name)
            if value != getattr(plain, name):
                shown = f"{value:g}" if isinstance(value, float) else value
                parts.append(f"{name.replace('_', '-')} {shown}")
        return " ".join(parts)

    def as_dict(self) -> dict[str, object]:
        """For a key of a cache, or the head of a log."""
        return asdict(self)

    def _selection(self) -> Selection:
        since_s = None if self.since is None else parse_since(self.since)
        return Selection(since_s, self.min_gpus, self.limit, self.compress)


def parse_since(text: str) -> float:
    """Seconds as the trace counts them, or a date. Raises OptionError."""
    try:
        value = float(text)
    except ValueError:
        try:
            value = epoch_s(text)
        except ValueError:
            value = math.nan
    if not math.isfinite(value):
        raise OptionError(f"--since {text}: neither seconds nor a date such as 2017-10-06")
    return value


@lru_cache(maxsize=2)
def _jobs(trace: str, name: str | None, selection: Selection, seed: int) -> list[TraceJob]:
    """Read once a process: all policies see the same jobs. Raises TraceError, OptionError."""
    if not trace.startswith(SYNTHETIC):
        return read(Path(trace), name, selection)
    count = trace.removeprefix(SYNTHETIC)
    if not count.isdecimal() or int(count) < 1:
        raise OptionError(f"--trace {trace}: not synthetic:NUMBER_OF_JOBS")
    jobs = selection.of(generate(int(count), seed))
    if not jobs:
        raise OptionError(f"--trace {trace}: no job fits the selection")
    return jobs
