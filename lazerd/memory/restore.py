"""From the store to the state in which the daemon before this one acted last."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass

from lazerd.engine import Engine, IllegalEvent
from lazerd.errors import StoreDamaged
from lazerd.memory import book as books
from lazerd.memory import records, snapshot
from lazerd.memory.book import Book, Record
from lazerd.memory.capacity import Capacity, of_cluster
from lazerd.memory.rebuild import rebuild
from lazerd.memory.store import Row, Snapshot, Store
from lazerd.model.actions import WakeAt
from lazerd.model.cluster import Cluster
from lazerd.policy.names import Policy

log = logging.getLogger(__name__)

FINGERPRINT = "fingerprint"
NODES = "nodes"


@dataclass(slots=True)
class Restored:
    """Where to go on. `seq` is the last cycle, `at_s` its time."""

    engine: Engine
    book: Book
    capacity: Capacity
    seq: int
    at_s: float
    wake_s: float | None
    replayed: int


def row_of(record: Record) -> Row:
    """A record as it is stored."""
    return Row(record.job_id, record.number, record.uid, record.ended_s, books.encode(record))


class _Differs(Exception):
    """This version, or this policy, would decide otherwise than was decided."""


def restore(store: Store, policy: Policy, fingerprint: str, now_s: float) -> Restored:
    """The engine and the book. Raises `StoreDamaged` when the records cannot be read."""
    book = _book(store)
    try:
        restored = _replay(store, policy, fingerprint, book)
    except (_Differs, snapshot.Unusable, records.Unreadable, IllegalEvent) as why:
        log.warning(
            "not replayed (%s): going on from the records of %d jobs", why, len(book.records)
        )
        restored = _from_records(store, policy, book, now_s)
        frozen = snapshot.freeze(restored.engine)
        store.compact(Snapshot(restored.seq, fingerprint, frozen))
        store.put(row_of(record) for record in book.changed())
    store.put(meta=[(FINGERPRINT, fingerprint)])
    return restored


def _book(store: Store) -> Book:
    book = Book()
    for row in store.living():
        try:
            book.add(books.decode(row.record))
        except ValueError as error:
            raise StoreDamaged(
                f"job {row.job_id} in {store.path} cannot be read: {error}"
            ) from None
    return book


def _replay(store: Store, policy: Policy, fingerprint: str, book: Book) -> Restored:
    if store.meta(FINGERPRINT) not in (fingerprint, None):
        raise _Differs("this version or policy is another")
    saved = store.snapshot()
    if saved is not None and saved.fingerprint != fingerprint:
        raise _Differs("the snapshot is of another version")
    engine = snapshot.thaw(saved.engine, policy) if saved else Engine(Cluster.pool(0), policy)
    seq, replayed, at_s, wake_s = (saved.seq if saved else 0), 0, 0.0, _wake_of(engine)
    for cycle in store.cycles():
        actions = engine.handle_all(records.decode(cycle.events), cycle.at_s)
        if records.encode(actions) != cycle.actions:
            raise _Differs(f"cycle {cycle.seq} is decided otherwise")
        wakes = [action.at_s for action in actions if isinstance(action, WakeAt)]
        wake_s = wakes[-1] if wakes else wake_s
        seq, at_s, replayed = cycle.seq, cycle.at_s, replayed + 1
    return Restored(
        engine, book, of_cluster(engine.floor.cluster), seq, max(at_s, 0.0), wake_s, replayed
    )


def _wake_of(engine: Engine) -> float | None:
    """A restored engine is woken at once: it says anew when it wants to be asked again."""
    return 0.0 if engine.floor.line.count else None


def _from_records(store: Store, policy: Policy, book: Book, now_s: float) -> Restored:
    sizes = {int(node): gpus for node, gpus in json.loads(store.meta(NODES) or "{}").items()}
    living = list(book.records.values())
    engine, actions = rebuild(policy, living, sizes, now_s)
    seq = max((cycle.seq for cycle in store.cycles()), default=0)
    saved = store.snapshot()
    seq = max(seq, saved.seq if saved else 0) + 1
    book.take((), actions, now_s)
    wakes = [action.at_s for action in actions if isinstance(action, WakeAt)]
    return Restored(
        engine, book, of_cluster(engine.floor.cluster), seq, now_s, wakes[-1] if wakes else None, 0
    )
