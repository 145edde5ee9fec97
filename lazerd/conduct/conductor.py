"""Drives the engine in real time: what happens goes in, is stored, and then done.

One task, one cycle after another:

    take all that has been told since the last cycle    (events of one instant together)
    engine.handle_all -> actions
    store events, actions and records, in a thread      (a crash before: it never happened)
    tell those who wait for it
    hand the actions to the backend                     (a crash before: `adopt` makes up for it)

While the disk is full a cycle is stored again and again; nothing it decided is done before.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress
from typing import Any, TypeVar

import msgspec
import trio

from lazerd.backend.protocol import Backend, Known
from lazerd.conduct.admission import Gate
from lazerd.conduct.clock import Clock
from lazerd.errors import StoreFull
from lazerd.memory import records
from lazerd.memory.book import Record
from lazerd.memory.restore import FINGERPRINT, NODES, Restored, row_of
from lazerd.memory.snapshot import freeze
from lazerd.memory.store import Cycle, Decision, Snapshot, Store
from lazerd.model.actions import Action, Kill, Preempt, Start, WakeAt
from lazerd.model.events import Event, Finished, Gone, Stuck, Submitted, Wakeup

log = logging.getLogger(__name__)
T = TypeVar("T")

COMPACT_EVERY = 5_000
"""Cycles that are replayed at most at a start: some seconds."""
CYCLES_REMEMBERED = 100
RETRY_S = 1.0
"""Between two attempts to store a cycle on a disk that is full."""


@dataclass(slots=True)
class Entry:
    """Events that somebody has told, and whether each could be."""

    events: tuple[Event, ...]
    records: tuple[Record, ...] = ()
    facts: tuple[Mapping[str, Any], ...] = ()
    """For each event: fields of its job's record, set when the event could be."""
    admitted: list[bool] = field(default_factory=list)
    stored: trio.Event = field(default_factory=trio.Event)


Watcher = Callable[[float, Sequence[Event], Sequence[Action], Sequence[Record]], None]
"""Sees every cycle once it is stored: when, what, and the records that changed."""


class Conductor:
    """The one task that calls the engine."""

    def __init__(
        self, restored: Restored, store: Store, backend: Backend, clock: Clock, fingerprint: str
    ) -> None:
        self.engine = restored.engine
        self.book = restored.book
        self.capacity = restored.capacity
        self.trouble: StoreFull | None = None
        """Why nothing can be stored at the moment."""
        self.watchers: list[Watcher] = []
        self.cycles: deque[tuple[float, float]] = deque(maxlen=CYCLES_REMEMBERED)
        """Of each cycle: seconds until it was decided, and until it was stored."""
        self._store, self._backend, self._clock = store, backend, clock
        self._fingerprint = fingerprint
        self._seq, self._since_compact = restored.seq, restored.replayed
        self._wake_s = restored.wake_s
        self._inbox: list[Entry] = []
        self._told = trio.Event()
        self._nodes = ""
        self._store_is_free = trio.Lock()
        self._mourned: set[str] = set()
        self._resubmit()

    def now_s(self) -> float:
        """The time that the engine is told."""
        return self._clock.now_s()

    def mourn(self, events: Iterable[Event]) -> None:
        """Jobs that are gone, which no backend will report; said before `known` is asked."""
        told = tuple(events)
        self._mourned.update(event.job_id for event in told if isinstance(event, Gone))
        self.note(*told)

    def known(self) -> list[Known]:
        """The living jobs, as a backend wants to know them."""
        return [_known(r) for r in self.book.records.values() if r.job_id not in self._mourned]

    async def tell(self, *events: Event, records: Iterable[Record] = ()) -> list[bool]:
        """Hand events to the next cycle; answers, once it is stored, which of them could be.

        `records` are those of jobs that are submitted with them. Raises `StoreFull`.
        """
        if self.trouble is not None:
            raise self.trouble
        entry = self.note(*events, records=records)
        await entry.stored.wait()
        return entry.admitted

    def note(
        self,
        *events: Event,
        records: Iterable[Record] = (),
        facts: Iterable[Mapping[str, Any]] = (),
    ) -> Entry:
        """The same, without waiting."""
        entry = Entry(events, tuple(records), tuple(facts))
        self._inbox.append(entry)
        self._told.set()
        return entry

    async def with_store(self, call: Callable[[], T]) -> T:
        """A call of the store in a thread, one at a time."""
        async with self._store_is_free:
            return await trio.to_thread.run_sync(call)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._until_something_is_due()
            with trio.CancelScope(shield=True):  # a cycle is whole, also the last one
                await self._cycle()
            if self._since_compact >= COMPACT_EVERY:
                await self._compact()

    async def rest(self) -> None:
        """The daemon ends in peace: the next one need not replay anything."""
        with trio.CancelScope(shield=True):
            await self._compact()

    def _resubmit(self) -> None:
        """Jobs that were stored, and whose daemon died before its engine heard of them."""
        for record in self.book.records.values():
            if record.job_id not in self.engine.floor.jobs:
                self.note(Submitted(record.spec))

    # --- one cycle -----------------------------------------------------------------------------

    async def _until_something_is_due(self) -> None:
        while not self._inbox and not self._is_time_to_wake(self.now_s()):
            wait_s = float("inf") if self._wake_s is None else self._clock.until_s(self._wake_s)
            with trio.move_on_after(wait_s):
                await self._told.wait()
        await trio.lowlevel.checkpoint()

    def _is_time_to_wake(self, now_s: float) -> bool:
        return self._wake_s is not None and self._wake_s <= now_s

    async def _cycle(self) -> None:
        now_s = self.now_s()
        await trio.sleep(self._clock.rest_s())
        entries, self._inbox, self._told = self._inbox, [], trio.Event()
        began_s = time.perf_counter()
        events = self._admitted(entries, now_s)
        actions = self.engine.handle_all(events, now_s) if events else ()
        self.book.take(events, actions, now_s)
        self._heed(events, actions)
        changed = self.book.changed()
        decided_s = time.perf_counter()
        await self._keep(now_s, events, actions, changed)
        self.cycles.append((decided_s - began_s, time.perf_counter() - began_s))
        for entry in entries:
            entry.stored.set()
        for watcher in self.watchers:
            watcher(now_s, events, actions, changed)
        for action in actions:
            log.log(logging.DEBUG if isinstance(action, WakeAt) else logging.INFO, "%s", action)
            await self._do(action)
        for record in changed:
            if record.state == "ended":
                await self._let_go(record)

    def _admitted(self, entries: list[Entry], now_s: float) -> list[Event]:
        gate = Gate(self.engine)
        events: list[Event] = []
        for entry in entries:
            for record in entry.records:
                self.book.add(record)
            entry.admitted = [gate.admits(event) for event in entry.events]
            events += compress(entry.events, entry.admitted)
            for event, facts in compress(
                zip(entry.events, entry.facts, strict=False), entry.admitted
            ):
                self.book.note(getattr(event, "job_id", ""), facts)
        if not any(isinstance(event, Stuck) for event in events):
            events += self.capacity.due(self.engine.floor.cluster, self._freed(events))
        if self._is_time_to_wake(now_s):
            self._wake_s = None
            events.append(Wakeup())
        return events

    def _freed(self, events: Iterable[Event]) -> dict[int, int]:
        freed: dict[int, int] = {}
        for event in events:
            record = self.book.records.get(getattr(event, "job_id", ""))
            if isinstance(event, Finished | Gone) and record and record.state != "stuck":
                for node, gpus in record.placement:
                    freed[node] = freed.get(node, 0) + gpus
        return freed

    def _heed(self, events: Iterable[Event], actions: Iterable[Action]) -> None:
        for event in events:
            if isinstance(event, Stuck):
                self.capacity.stuck(self.book.records[event.job_id].placement)
        for action in actions:
            if isinstance(action, WakeAt):
                self._wake_s = action.at_s

    async def _keep(
        self,
        now_s: float,
        events: Sequence[Event],
        actions: Sequence[Action],
        changed: Sequence[Record],
    ) -> None:
        if not events and not changed:
            return
        self._seq += bool(events)
        cycle = Cycle(self._seq, now_s, records.encode(events), records.encode(actions))
        rows = [row_of(record) for record in changed]
        meta = self._new_meta()
        if events:
            self._since_compact += 1
            write = partial(self._store.commit, cycle, rows, decided(now_s, events, actions), meta)
        else:
            write = partial(self._store.put, rows, meta)
        await self._insist(write)

    async def _insist(self, write: Callable[[], None]) -> None:
        while True:
            try:
                await self.with_store(write)
            except StoreFull as error:
                if self.trouble is None:
                    log.error("%s; jobs that run go on, nothing is started meanwhile", error)
                self.trouble = error
                await trio.sleep(RETRY_S)
            else:
                self.trouble = None
                return

    def _new_meta(self) -> list[tuple[str, str]]:
        sizes = dict(enumerate(self.engine.floor.cluster.size))
        nodes = json.dumps(sizes)
        changed = nodes != self._nodes
        self._nodes = nodes
        return [(NODES, nodes), (FINGERPRINT, self._fingerprint)] if changed else []

    async def _do(self, action: Action) -> None:
        act = _DO.get(type(action))
        if act is not None:
            await act(self, action)

    async def _start(self, action: Start) -> None:
        record = self.book.records[action.job_id]
        launch = record.launch and replace(record.launch, attempt=record.attempt)
        await self._backend.start(launch, action.job_id, action.placement)

    async def _preempt(self, action: Preempt) -> None:
        record = self.book.records[action.job_id]
        await self._backend.preempt(action.job_id, record.signal_number, record.spec.grace_s)

    async def _kill(self, action: Kill) -> None:
        await self._backend.kill(action.job_id)

    async def _let_go(self, record: Record) -> None:
        if record.cancelled and record.attempt == 0:
            await self._backend.withdraw(record.job_id)
        await self._backend.forget(record.job_id)

    async def _compact(self) -> None:
        def compact() -> None:
            frozen = freeze(self.engine)
            self._store.compact(Snapshot(self._seq, self._fingerprint, frozen))

        try:
            await self.with_store(compact)
            self._since_compact = 0
        except StoreFull as error:
            log.error("%s", error)


_DO: dict[type, Callable[[Conductor, Any], Awaitable[None]]] = {
    Start: Conductor._start,
    Preempt: Conductor._preempt,
    Kill: Conductor._kill,
}


def decided(now_s: float, events: Iterable[Event], actions: Iterable[Action]) -> list[Decision]:
    """What a cycle has decided, by job, with the numbers: a preemption is told to both sides."""
    found = [
        Decision(event.job_id, now_s, "Stuck", "{}") for event in events if type(event) is Stuck
    ]
    for action in actions:
        if isinstance(action, Start):
            found.append(_decision(action.job_id, now_s, "Start", placement=action.placement))
        elif isinstance(action, Kill):
            found.append(_decision(action.job_id, now_s, "Kill"))
        elif isinstance(action, Preempt):
            numbers = msgspec.to_builtins(action.weighing)
            victim, waiting = action.job_id, action.beneficiary
            found.append(
                _decision(victim, now_s, "Preempted", beneficiary=waiting, weighing=numbers)
            )
            if waiting is not None:
                found.append(_decision(waiting, now_s, "Preempts", victim=victim, weighing=numbers))
    return found


def _decision(job_id: str, now_s: float, kind: str, **numbers: Any) -> Decision:
    return Decision(job_id, now_s, kind, json.dumps(numbers))


def _known(record: Record) -> Known:
    return Known(
        record.job_id,
        record.launch,
        record.placement if record.holds_gpus else (),
        leaving=record.state in ("leaving", "stuck"),
        working=record.state == "working",
        signal_number=record.signal_number,
        grace_s=record.spec.grace_s,
        attempt=record.attempt,
    )
