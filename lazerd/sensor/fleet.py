"""Pure: what the sensors of many nodes have reported, put together by job.

    fleet.expect("42", {"gpu-1": 8, "gpu-2": 8})     when a job is placed
    fleet.take(arrived)                              whatever the receiver yields
    fleet.evidence("42", now_s)                      how far up the ladder it has come
    fleet.is_clear("42", after_s)                    whether it is gone from its GPUs
    fleet.forget("42")                               when it is gone

Times are those of lazerd's one clock, in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lazerd.backend.protocol import Evidence, Rung
from lazerd.sensor.evidence import DEFAULT, Ladder, Rule, Sample
from lazerd.sensor.occupancy import is_whole, jobs_in, uses_of
from lazerd.sensor.reading import GpuReading, Health, Reading

UNWATCHED = Evidence(Rung.NOTHING, "no sensor was asked about it", complete=False)


@dataclass(frozen=True, slots=True)
class Arrived:
    """A report of `node`. The look began after `after_s` and had ended at `received_s`."""

    node: str
    reading: Reading
    after_s: float
    received_s: float


class Fleet:
    """Every job that is placed has a ladder; every node its last report."""

    def __init__(self, rule: Rule = DEFAULT) -> None:
        self._rule = rule
        self._last: dict[str, Arrived] = {}
        self._ladders: dict[str, Ladder] = {}
        self._nodes_of: dict[str, tuple[str, ...]] = {}
        self._jobs_on: dict[str, dict[str, None]] = {}
        self._count = 0

    def expect(self, job_id: str, gpus_by_node: Mapping[str, int]) -> None:
        """A job was placed: it starts at the foot of the ladder."""
        self.forget(job_id)
        self._ladders[job_id] = Ladder(gpus_by_node, self._rule)
        self._nodes_of[job_id] = tuple(gpus_by_node)
        for node in gpus_by_node:
            self._jobs_on.setdefault(node, {})[job_id] = None

    def forget(self, job_id: str) -> None:
        """A job is gone."""
        self._ladders.pop(job_id, None)
        for node in self._nodes_of.pop(job_id, ()):
            del self._jobs_on[node][job_id]

    def say(self, job_id: str, detail: str, now_s: float) -> None:
        """A job says that it works, or has a checkpoint."""
        if job_id in self._ladders:
            self._ladders[job_id].say(detail, now_s)

    def take(self, arrived: Arrived) -> tuple[str, ...]:
        """A report; the jobs whose set-up it ended."""
        self._last[arrived.node] = arrived
        self._count += 1
        if not is_whole(arrived.reading):
            return ()
        here = self._jobs_on.get(arrived.node, {})
        return tuple(job_id for job_id in here if self._climbs(job_id, arrived))

    def evidence(self, job_id: str, now_s: float) -> Evidence:
        """How far a job has come since it was placed."""
        ladder = self._ladders.get(job_id)
        return UNWATCHED if ladder is None else ladder.evidence(now_s)

    def is_clear(self, job_id: str, after_s: float) -> bool | None:
        """Whether every node of a job, looked at after `after_s`, was without its processes.

        None: a node has not been looked at since, or could not be, or a process there may be the
        job's for all that is known. That is not taken for clear.
        """
        seen = [self._last.get(node) for node in self._nodes_of.get(job_id, ())]
        if any(last is not None and job_id in jobs_in(last.reading) for last in seen):
            return False
        if not seen or any(last is None or not _is_proof(last, after_s) for last in seen):
            return None
        return True

    def lost(self) -> dict[str, tuple[GpuReading, ...]]:
        """The GPUs of each node that are lost, of nodes with any."""
        found = {
            node: tuple(gpu for gpu in last.reading.gpus if gpu.health is Health.LOST)
            for node, last in self._last.items()
        }
        return {node: gpus for node, gpus in found.items() if gpus}

    def reading(self, node: str) -> Arrived | None:
        """The last report of a node."""
        return self._last.get(node)

    def silent(self, now_s: float) -> dict[str, float]:
        """Nodes whose last report is not fresh any more: for how many seconds."""
        ages = {node: now_s - last.received_s for node, last in self._last.items()}
        return {node: age_s for node, age_s in ages.items() if age_s > self._rule.fresh_s}

    def _climbs(self, job_id: str, arrived: Arrived) -> bool:
        ladder = self._ladders[job_id]
        worked = ladder.working
        uses = uses_of(arrived.reading, lambda process: process.job_id == job_id)
        ladder.observe(Sample(arrived.node, self._count, uses), arrived.received_s)
        return ladder.working and not worked


def _is_proof(last: Arrived, after_s: float) -> bool:
    gpus = last.reading.gpus
    is_complete = not any(gpu.unlisted for gpu in gpus) and all(
        process.job_id is not None for gpu in gpus for process in gpu.processes
    )
    return last.after_s >= after_s and is_whole(last.reading) and is_complete
