"""An engine from the records of the jobs, where replaying its events is not possible.

That is so after an upgrade, or with another policy: the same events would be decided otherwise than
they were. What is known is enough to go on from: who runs where, since when, who is in line. What
the engine had learned of durations and set-ups is lost; it learns again.

The engine has no event for "this job runs here already", and needs none: each job that holds GPUs
is submitted, alone, to a cluster that has exactly those GPUs free: there is one thing to do.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from lazerd.engine import Engine
from lazerd.memory.book import Record
from lazerd.model.actions import Action, Start
from lazerd.model.cluster import Cluster
from lazerd.model.events import (
    Cancelled,
    CheckpointSafe,
    Event,
    Evicted,
    Held,
    NodeUp,
    SetupEnded,
    Submitted,
)
from lazerd.policy.names import Policy

log = logging.getLogger(__name__)


def rebuild(
    policy: Policy, records: Iterable[Record], sizes: dict[int, int], now_s: float
) -> tuple[Engine, tuple[Action, ...]]:
    """The engine, and what it wants done now. `sizes`: GPUs by node, those in use counted."""
    engine = Engine(Cluster.pool(0), policy)
    known = sorted(records, key=lambda record: record.number)
    used = dict.fromkeys(sizes, 0)
    for record in (r for r in known if r.holds_gpus):
        _place(engine, record, used, now_s)
    events: list[Event] = [NodeUp(node, max(size, used[node])) for node, size in sizes.items()]
    for record in (r for r in known if not r.holds_gpus):
        events.append(Submitted(record.spec))
        if record.state == "held":
            events.append(Held(record.job_id))
    return engine, engine.handle_all(events, now_s)


def _place(engine: Engine, record: Record, used: dict[int, int], now_s: float) -> None:
    for node, gpus in record.placement:
        used[node] = used.get(node, 0) + gpus
    narrow: list[Event] = [NodeUp(node, gpus) for node, gpus in used.items()]
    started = engine.handle_all([*narrow, Submitted(record.spec)], now_s)
    if Start(record.job_id, record.placement) not in started:
        log.warning("job %s runs, but not where it would be placed now", record.job_id)
    for events in _since_then(record, now_s):
        engine.handle_all(events, now_s)


def _since_then(record: Record, now_s: float) -> Iterable[list[Event]]:
    if record.working_s is not None:
        yield [SetupEnded(record.job_id)]
        yield [CheckpointSafe(record.job_id, record.safe_s)]
    if record.state in ("leaving", "stuck"):
        yield [Cancelled(record.job_id) if record.cancelled else Evicted(record.job_id)]
