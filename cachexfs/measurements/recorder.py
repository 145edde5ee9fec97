"""What is under way and what has just ended, in memory. Called in the event loop; never waits.

Of thousands of small files a second, some are forecast and recorded: after a burst of `BURST` of
them one in `PACE_S`, and `RUNNING_AT_MOST` at the same time. The bytes of all are counted.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from cachexfs.durability.calibration import NONE, Correction
from cachexfs.durability.forecast import Model
from cachexfs.durability.latency.curve import Curve
from cachexfs.durability.latency.sample import MEASURED_PHASES
from cachexfs.durability.paths import Decision
from cachexfs.durability.score import LEVELS
from cachexfs.durability.writing import is_known
from cachexfs.measurements.record import WHOLE, Record
from cachexfs.measurements.underway import UnderWay

BURST, PACE_S = 64, 0.02
"""A checkpoint of many shards is recorded whole. To forecast a file takes 3 ms of a thread."""

WRITE_PACE_S = 0.1
"""The same for whole writes, of which a forecast takes as long again."""

RUNNING_AT_MOST = 256
WAITING_AT_MOST = 4096
"""Ended records that nobody has fetched; the oldest go first."""


class Key(NamedTuple):
    """One stretch of one version of one file; `source` is the peer, for a replication."""

    phase: str
    ino: int
    version: int
    source: str = ""


Forecast = Callable[[], Curve]
"""A forecast that is still to be computed: by the keeper's thread, not in the event loop."""


class Drained(NamedTuple):
    """A record as it was when it was fetched, and what its forecast is computed from.

    `correction`: of a whole way, the one in force when it began; None while priors have a say.
    """

    record: Record
    forecast: Forecast | None
    correction: Correction | None = None

    def complete(self) -> Record:
        """With the quantiles of the forecast. In any thread; takes up to some milliseconds."""
        if self.forecast is None or self.record.quantiles:
            return self.record
        curve = self.forecast()
        self.record.quantiles = _quantiles(curve)
        if self.correction is not None:
            self.record.composed = self.record.quantiles
            self.record.quantiles = _quantiles(self.correction.of(curve))
        return self.record


class _Running(NamedTuple):
    record: Record
    begun_s: float
    """On the monotonic clock."""
    is_kept: bool
    forecast: Forecast | None
    correction: Correction | None

    def drained(self, record: Record) -> Drained:
        return Drained(record, self.forecast, self.correction)


class Recorder:
    """Begins and ends of phases, and the model that they teach. `model`: replaced by the keeper."""

    def __init__(
        self,
        last_id: int = 0,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.model = Model()
        self.ended_in_all = 0
        """Phases that ended and were kept since the start."""
        self._wall = wall
        self._monotonic = monotonic
        self._last_id = last_id
        self._running: dict[Key, _Running] = {}
        self._by_ino: dict[int, set[Key]] = {}
        self._under_way: dict[tuple[str, str], UnderWay] = {}
        self._ended: deque[Drained] = deque(maxlen=WAITING_AT_MOST)
        self._decisions: deque[tuple[float, str, str]] = deque(maxlen=WAITING_AT_MOST)
        self._kept_running = 0
        self._full_at_s: dict[str, float] = {}

    # --- begin and end --------------------------------------------------------------------------

    def is_due(self, kind: str = "way", pace_s: float = PACE_S) -> bool:
        """Whether the file that begins now is one of those that are kept: a leaky bucket a kind."""
        now_s = self._monotonic()
        full_at_s = max(self._full_at_s.get(kind, now_s), now_s)
        if full_at_s - now_s >= BURST * PACE_S or self._kept_running >= RUNNING_AT_MOST:
            return False
        self._full_at_s[kind] = full_at_s + pace_s
        return True

    def begin(
        self,
        key: Key,
        size_bytes: int,
        *,
        keep: bool,
        path: str = "",
        job: str = "",
        ahead_bytes: int = 0,
        beside_bytes: int = 0,
        forecast: Forecast | None = None,
        since_s: float | None = None,
    ) -> None:
        """A phase begins. One of the same key that is under way is given up.

        `since_s`: on the monotonic clock, where it began before now.
        """
        if key in self._running:
            self.give_up([key])
        now_s = self._monotonic()
        since_s = now_s if since_s is None else since_s
        record = Record(
            id=0, phase=key.phase, size_bytes=size_bytes, begin_s=self._wall() - (now_s - since_s),
            source=key.source, path=path, job=job, ahead_bytes=ahead_bytes,
            beside_bytes=beside_bytes,
        )  # fmt: skip
        if keep:
            self._last_id += 1
            record.id = self._last_id
            self._kept_running += 1
        correction = self._correction(key.phase) if keep else None
        self._running[key] = _Running(record, since_s, keep, forecast, correction)
        self._by_ino.setdefault(key.ino, set()).add(key)
        self._under_way.setdefault((key.phase, key.source), UnderWay()).begin(size_bytes, now_s)

    def end(self, key: Key, size_bytes: int | None = None, at_s: float | None = None) -> None:
        """A phase ended, if it was under way. `size_bytes`: when it was not known before.

        `at_s`: on the monotonic clock, where it ended before now.
        Then the forecast that is scored is the one that this size would have got.
        """
        running = self._take(key)
        if running is None:
            return
        record, line = running.record, self._under_way[key.phase, key.source]
        now_s = self._monotonic() if at_s is None else at_s
        line.end(record.size_bytes, now_s)
        record.behind_bytes = line.came_during(record.size_bytes, running.begun_s, now_s)
        record.elapsed_s = now_s - running.begun_s
        record.state = "ended"
        if size_bytes is not None:
            record.size_bytes = size_bytes
            running = running._replace(forecast=self.model_now().drawn_of(record.sample()))
        self._finish(running)

    def give_up(self, keys: Iterable[Key]) -> None:
        """Phases will not end, or nobody wants them to: it would have been longer than this."""
        for key in list(keys):
            running = self._take(key)
            if running is not None:
                self._under_way[key.phase, key.source].give_up(running.record.size_bytes)
                running.record.elapsed_s = self._monotonic() - running.begun_s
                running.record.state = "given up"
                self._finish(running)

    def decided(self, file: str, decision: Decision) -> None:
        """A path was chosen."""
        text = msgspec.json.encode(decision).decode()
        self._decisions.append((self._wall(), file, text))

    # --- what is known --------------------------------------------------------------------------

    def of(self, ino: int) -> list[Key]:
        """What is under way of a file."""
        return sorted(self._by_ino.get(ino, ()))

    def running(self, key: Key) -> Record | None:
        """A phase that is under way, with what has elapsed; None when it is not."""
        found = self._running.get(key)
        if found is None:
            return None
        found.record.elapsed_s = self._monotonic() - found.begun_s
        return found.record

    def begun_s(self, key: Key) -> float | None:
        """When a phase that is under way began, on the monotonic clock."""
        found = self._running.get(key)
        return None if found is None else found.begun_s

    def bytes_under_way(self, phase: str, source: str | None = None) -> int:
        """Still to be moved in a phase, to one source or (None) to all."""
        now_s = self._monotonic()
        return sum(
            each.left_bytes(now_s)
            for (of, to), each in self._under_way.items()
            if of == phase and source in (None, to)
        )

    def files_under_way(self, phase: str) -> int:
        """Bytes of all files in a phase, whatever part of them has been moved."""
        return sum(each.size_bytes for (of, _), each in self._under_way.items() if of == phase)

    @property
    def corrections(self) -> Mapping[str, Correction]:
        """Of whole ways, as far as forecasts have come true."""
        return self.model.corrections

    def model_now(self) -> Model:
        """The model, told what time it is."""
        self.model.it_is(self._wall())
        return self.model

    # --- for the keeper -------------------------------------------------------------------------

    def drain(self, *, running: bool) -> list[Drained]:
        """What ended since the last call and, on request, what is under way."""
        ended, self._ended = list(self._ended), deque(maxlen=WAITING_AT_MOST)
        if running:
            now_s = self._monotonic()
            for one in self._running.values():
                if one.is_kept:
                    one.record.elapsed_s = now_s - one.begun_s
                    ended.append(one.drained(msgspec.structs.replace(one.record)))
        return ended

    def drain_decisions(self) -> list[tuple[float, str, str]]:
        """What was decided since the last call."""
        decisions = list(self._decisions)
        self._decisions.clear()
        return decisions

    # --- small steps ----------------------------------------------------------------------------

    def _take(self, key: Key) -> _Running | None:
        running = self._running.pop(key, None)
        if running is not None:
            self._by_ino[key.ino].discard(key)
            if not self._by_ino[key.ino]:
                del self._by_ino[key.ino]
        return running

    def _correction(self, kind: str) -> Correction | None:
        """That of a whole way, once there is something to correct."""
        if kind not in WHOLE or not is_known(self.model, kind):
            return None
        return self.corrections.get(kind, NONE)

    def _finish(self, running: _Running) -> None:
        if not running.is_kept:
            return
        self._kept_running -= 1
        self._ended.append(running.drained(running.record))
        if running.record.phase in MEASURED_PHASES and running.record.elapsed_s > 0:
            self.ended_in_all += 1
            self.model_now().saw(running.record.sample())


def _quantiles(curve: Curve) -> tuple[float, ...]:
    return tuple(curve.quantile(p) for p in LEVELS)
