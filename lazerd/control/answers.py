"""What is answered to people: rows of the queue, one job explained, nodes, history, status.

Plain dictionaries: these names are the JSON keys of `lazer ... --json`. Times `*_at` are seconds
since the epoch, `*_s` durations; what is not known is null.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from lazerd.backend.protocol import Backend
from lazerd.conduct.conductor import Conductor
from lazerd.conduct.hearing import Hearing
from lazerd.conduct.tally import Tally
from lazerd.control.asker import Asker, name_of
from lazerd.control.reasons import Reasons
from lazerd.memory import book as books
from lazerd.memory.book import Record
from lazerd.memory.store import Decision, Row
from lazerd.model.reasons import Reason

SCHEMA = 1
BACKEND_LOST = "BackendLost"
"""The reason of every pending job while the backend cannot be reached."""
STORE_FULL = "StoreFull"

SENTENCES: dict[str, str] = {
    Reason.TOO_BIG.value: "no node, or not the whole cluster, has that many GPUs in service",
    Reason.HELD.value: "it is held; `lazer release` lets it go on",
    Reason.AWAITING_VICTIMS.value: "jobs were told to go for it and are on their way out",
    Reason.DEFERRED_UNTIL_CHECKPOINT.value: (
        "a job could be preempted for it, at less loss once that job's next checkpoint is safe"
    ),
    Reason.DEFERRED_UNTIL_COMPLETION.value: (
        "running jobs end soon enough that preempting one would cost more than waiting"
    ),
    Reason.DEFERRED_UNTIL_SETUP_END.value: (
        "the jobs that could be preempted are in set-up: that would throw it away for nothing"
    ),
    Reason.DEFERRED_BURST.value: "jobs keep arriving: it is decided once for all of them",
    Reason.RESERVED.value: "GPUs are kept for it as they come free",
    Reason.RESOURCES.value: "it is first in line; too few GPUs are free",
    Reason.PRIORITY.value: "others are before it in line",
    BACKEND_LOST: "the backend cannot be reached; nothing is known to have changed",
    STORE_FULL: "the store has no room, so nothing is started",
}


class Answers:
    """Looks at everything, changes nothing."""

    def __init__(self, conductor: Conductor, hearing: Hearing, backend: Backend) -> None:
        self._conductor, self._hearing, self._backend = conductor, hearing, backend
        self.tally: Tally | None = None

    def queue(self, asker: Asker) -> list[dict[str, Any]]:
        """All jobs that live and that the asker may see, in the order of submission."""
        now_s = self._conductor.now_s()
        everybody = self._conductor.book.records.values()
        records = [r for r in everybody if asker.is_operator or r.uid == asker.uid]
        pairs = zip(records, self.reasons(records), strict=True)
        return [self.row(record, reason, now_s) for record, reason in pairs]

    def row(self, record: Record, reason: str, now_s: float) -> dict[str, Any]:
        """One line of the queue."""
        spec = record.spec
        return {
            "job": spec.job_id,
            "name": spec.name,
            "user": spec.user,
            "class": spec.job_class,
            "gpus": spec.gpus,
            "state": record.state,
            "reason": reason,
            "submitted_at": spec.submitted_s,
            "in_state_s": now_s - record.since_s,
            "worked_s": record.worked_s(now_s),
            "estimate_s": spec.estimate_s,
            "preemptions": record.preemptions,
            "where": record.where,
        }

    def reason(self, record: Record) -> str:
        """One token for a job that waits; "" for one that does not."""
        return self.reasons([record])[0]

    def reasons(self, records: Sequence[Record]) -> list[str]:
        """The same for many jobs at once."""
        known = Reasons(self._conductor.engine)
        everybodys = BACKEND_LOST if self._hearing.lost else ""
        everybodys = everybodys or (STORE_FULL if self._conductor.trouble is not None else "")
        return [
            (everybodys or known.of(r.job_id)) if r.state in ("pending", "held") else ""
            for r in records
        ]

    def explain(self, record: Record, decisions: Iterable[Decision]) -> dict[str, Any]:
        """One job: why, until when, what it would cost to go now, what was decided before."""
        now_s = self._conductor.now_s()
        reason = self.reason(record)
        weighing = self._weighing(record)
        return {
            **self.row(record, reason, now_s),
            "at": now_s,
            "sentence": record.held_because or SENTENCES.get(reason, ""),
            "placed_at": record.placed_s if record.holds_gpus else None,
            "working_at": record.working_s if record.holds_gpus else None,
            "ended_at": record.ended_s,
            "exit_code": record.exit_code,
            "detail": record.detail,
            "evidence": record.evidence,
            "cancelled": record.cancelled,
            "attempt": record.attempt,
            "signal": record.signal_number,
            "grace_s": record.spec.grace_s,
            "futile_preemptions": record.futile,
            "safe_checkpoint_at": record.safe_at_s,
            "safe_work_s": record.safe_s,
            "gpu_s": {
                "setup": record.setup_gpu_s,
                "work": record.work_gpu_s,
                "leaving": record.leaving_gpu_s,
            },
            "command": list(record.launch.command) if record.launch else [],
            "directory": record.launch.directory if record.launch else "",
            "output": record.launch.output if record.launch else "",
            "weighing": weighing,
            "decisions": [
                {"at": d.at_s, "kind": d.kind, **json.loads(d.numbers)} for d in decisions
            ],
        }

    def _weighing(self, record: Record) -> Any:
        """What preempting for it now would cost, and when it will be better; null: nobody can."""
        if record.state != "pending" or self._hearing.lost:
            return None
        weighing = self._conductor.engine.explain(record.job_id).weighing
        return msgspec.to_builtins(weighing)

    def history(self, rows: Iterable[Row]) -> list[dict[str, Any]]:
        """Jobs that have ended, one line each."""
        return [_past(books.decode(row.record)) for row in rows]

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes as the backend and the engine see them."""
        cluster = self._conductor.engine.floor.cluster
        found = []
        for number, node in sorted(self._conductor.capacity.nodes.items()):
            known = number < len(cluster.size)
            found.append(
                {
                    "node": number,
                    "name": node.name or str(number),
                    "gpus": node.offered,
                    "free": max(0, cluster.free[number]) if known else 0,
                    "leaving": cluster.leaving[number] if known else 0,
                    "kept": cluster.kept[number] if known else 0,
                    "not_steered": node.guests,
                    "drained": node.drained,
                    "why": node.why,
                    "jobs": sorted(
                        r.job_id
                        for r in self._conductor.book.records.values()
                        if any(n == number for n, _ in r.placement)
                    ),
                }
            )
        return found

    def status(self, version: str) -> dict[str, Any]:
        """How the daemon, its backend and its queue are."""
        conductor = self._conductor
        records = list(conductor.book.records.values())
        problems = [msgspec.to_builtins(problem) for problem in self._backend.problems()]
        if self._hearing.lost:
            problems.insert(0, {"code": BACKEND_LOST, "detail": self._hearing.lost, "action": ""})
        if conductor.trouble is not None:
            problems.insert(0, {"code": STORE_FULL, "detail": str(conductor.trouble), "action": ""})
        return {
            "schema": SCHEMA,
            "version": version,
            "backend": self._backend.name,
            "policy": conductor.engine.policy.name,
            "jobs": dict(Counter(record.state for record in records)),
            "reasons": dict(Counter(filter(None, self.reasons(records)))),
            "cycles": _cycles(conductor.cycles),
            "since_start": self.tally.report() if self.tally is not None else {},
            "not_steered": sorted(self._hearing.guests),
            "problems": problems,
            "facts": dict(self._backend.facts()),
        }


def _cycles(cycles: Iterable[tuple[float, float]]) -> dict[str, float]:
    """The longest of the last cycles, in milliseconds."""
    decided, stored = zip(*cycles, strict=True) if cycles else ((0.0,), (0.0,))
    return {
        "longest_decision_ms": round(1e3 * max(decided), 3),
        "longest_with_store_ms": round(1e3 * max(stored), 3),
    }


def _past(record: Record) -> dict[str, Any]:
    return {
        "job": record.job_id,
        "name": record.spec.name,
        "user": record.spec.user or name_of(record.uid),
        "gpus": record.spec.gpus,
        "end": "cancelled" if record.cancelled else "ended",
        "exit_code": record.exit_code,
        "detail": record.detail,
        "submitted_at": record.spec.submitted_s,
        "ended_at": record.ended_s,
        "preemptions": record.preemptions,
        "futile_preemptions": record.futile,
        "work_s": record.work_s,
        "gpu_s": {
            "setup": record.setup_gpu_s,
            "work": record.work_gpu_s,
            "leaving": record.leaving_gpu_s,
        },
    }
