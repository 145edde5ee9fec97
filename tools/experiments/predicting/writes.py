"""Ordinary writes on one host, each forecast at its begin; quiet at first, then with a neighbour.

host1 ──peers──▶ host2 ◀──peers── host3: the neighbour, in spells
  └──pfs──▶ storage ◀──pfs──┘
"""

from __future__ import annotations

import itertools
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec

from cachexfs.durability.latency.sample import MEASURED_PHASES
from cachexfs.measurements.record import Record
from tools.experiments.predicting.foreseeing import TARGETS, Foreseen, Quantiles, foresee
from tools.experiments.predicting.held import Held
from tools.experiments.predicting.rivals import Timed, guesses
from tools.experiments.predicting.site import (
    Neighbour,
    Writer,
    Written,
    knowledge,
    limit_hosts,
    records,
    site,
)
from tools.experiments.predicting.workload import MIB, Sizes, Spell, Write, spells, writes

PEERS = {"host1": "host2", "host2": "host1", "host3": "host2"}
PHASES = MEASURED_PHASES
PROFILES = ("steady", "bursts")
_CLOCKS_S = 0.001
"""A begin that is computed from a duration may lie so much before the one that was seen."""

_WRITTEN_DOWN_S = 2.5
"""The daemon writes its measurements down each second."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How long, how large, how fast. The minutes are those of all writing together."""

    minutes: float = 13.8
    peers_rate: str = "320mbit"
    pfs_rate: str = "240mbit"
    sizes: Sizes = Sizes(8 * MIB, 40 * MIB)
    neighbour_bytes: int = 24 * MIB
    think_s: float = 0.2
    pause_s: tuple[float, float] = (8.0, 24.0)
    busy_s: tuple[float, float] = (5.0, 12.0)

    def runs(self) -> list[tuple[str, int, float]]:
        """(profile, run, seconds): the first is for the model to learn; the others come twice."""
        total_s = 60.0 * self.minutes
        return [
            ("learning", 0, 0.1 * total_s),
            *(("steady", run, 0.2 * total_s) for run in (0, 1)),
            *(("bursts", run, 0.25 * total_s) for run in (0, 1)),
        ]


QUICK = Plan(minutes=0.9, pause_s=(2.0, 4.0), busy_s=(2.0, 4.0))


@dataclass
class Seen:
    """A write, what was forecast of it at its begin, and what its writer saw."""

    profile: str
    run: int
    number: int
    write: Write
    written: Written
    foreseen: dict[str, Foreseen]


@dataclass
class Log:
    """Everything of one performance."""

    seen: list[Seen] = field(default_factory=list)
    busy: list[tuple[float, float]] = field(default_factory=list)
    """When the neighbour was, since the epoch."""
    measured: list[Record] = field(default_factory=list)


def perform(plan: Plan, report: Callable[[str], None]) -> Log:
    """Raises `CacheXError`. Nothing is left of the cluster."""
    log = Log()
    with site(3, peers=PEERS) as cluster:
        first, _, third = cluster.hosts
        limit_hosts([cluster.host(2)], plan.peers_rate, None)
        cluster.limit_storage(plan.pfs_rate)
        writer = Writer(first, "job")
        with Neighbour(third, plan.neighbour_bytes) as neighbour:
            for profile, run, lasts_s in plan.runs():
                report(f"{profile}, run {run + 1}, {lasts_s:.0f} s")
                times = spells(5, plan.pause_s, plan.busy_s) if profile == "bursts" else iter(())
                with _in_spells(neighbour, times, log):
                    _write(writer, plan, (profile, run, lasts_s), log)
                writer.wait()
        time.sleep(_WRITTEN_DOWN_S)
        log.measured = records(first)
    return log


def _write(writer: Writer, plan: Plan, kind: tuple[str, int, float], log: Log) -> None:
    """One run: the same for the same profile, but for a few kilobytes a file."""
    profile, run, lasts_s = kind
    seed = ("learning", *PROFILES).index(profile)
    until_s = time.monotonic() + lasts_s
    drawn = writes(seed, plan.sizes, plan.think_s, first=len(log.seen))
    for number, write in enumerate(
        itertools.takewhile(lambda _: time.monotonic() < until_s, drawn)
    ):
        time.sleep(write.think_s)
        foreseen = foresee(knowledge(writer.host), write.size_bytes)
        written = writer.write(write.size_bytes, sync=write.sync)
        log.seen.append(Seen(profile, run, number, write, written, foreseen))
        writer.tidy()


@contextmanager
def _in_spells(neighbour: Neighbour, times: Iterator[Spell], log: Log) -> Iterator[None]:
    """The neighbour is busy now and then, by the clock, within the block."""
    over = threading.Event()

    def run() -> None:
        for spell in times:
            if over.wait(spell.pause_s):
                return
            begin_s = time.time()
            neighbour.set_busy(True)
            over.wait(spell.busy_s)
            neighbour.set_busy(False)
            log.busy.append((begin_s, time.time()))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


# --- held against what was seen; pure -------------------------------------------------------------


def held(log: Log) -> list[Held]:
    """All forecasts: of the writes from their begins, and of the phases from theirs."""
    made = [one for target in TARGETS for one in _of_target(log, target)]
    made += [one for phase in PHASES for one in _of_phase(log, phase)]
    made = [one for one in made if one.profile in PROFILES]
    return sorted(made, key=lambda one: PROFILES.index(one.profile))


def _of_target(log: Log, target: str) -> list[Held]:
    ended = _ends(log.measured, {"replicated": "replicate", "durable": "durable"}.get(target, ""))
    seen = [(one, _seen_s(one, target, ended)) for one in log.seen]
    kept = [(one, seen_s) for one, seen_s in seen if seen_s is not None and target in one.foreseen]
    series = [Timed(one.written.begin_s, one.write.size_bytes, s) for one, s in kept]
    return [
        msgspec.structs.replace(
            _held(one, target, timed, one.foreseen[target].quantiles, rivals),
            composed=one.foreseen[target].composed,
        )
        for (one, _), timed, rivals in zip(kept, series, guesses(series), strict=True)
    ]


def _seen_s(one: Seen, target: str, ended: dict[int, float]) -> float | None:
    if target == "returned":
        return one.written.returned_s - one.written.begin_s if one.write.sync else None
    end_s = ended.get(one.write.size_bytes)
    return None if end_s is None else end_s - one.written.begin_s


def _ends(measured: Sequence[Record], phase: str) -> dict[int, float]:
    """When the file of each size came to its end of a phase; no two are of one size."""
    return {
        record.size_bytes: record.begin_s + record.elapsed_s
        for record in measured
        if record.phase == phase and record.state == "ended"
    }


def _of_phase(log: Log, phase: str) -> list[Held]:
    """As the daemon forecast them when they began."""
    of = _write_of(log, phase)
    kept = [
        (one, record)
        for record in log.measured
        if record.phase == phase
        and record.forecast() is not None
        and (one := of(record)) is not None
    ]
    series = [Timed(record.begin_s, record.size_bytes, record.elapsed_s) for _, record in kept]
    return [
        _held(one, phase, timed, record.quantiles, rivals)
        for (one, record), timed, rivals in zip(kept, series, guesses(series), strict=True)
    ]


def _write_of(log: Log, phase: str) -> Callable[[Record], Seen | None]:
    """Finds the write of a record: by its size or, of an opening, which has none, by the time."""
    if phase != "opening":
        by_size = {one.write.size_bytes: one for one in log.seen}
        return lambda record: by_size.get(record.size_bytes)
    ordered = sorted(log.seen, key=lambda one: one.written.begin_s)
    begins = [one.written.begin_s for one in ordered]

    def by_time(record: Record) -> Seen | None:
        i = bisect_right(begins, record.begin_s + _CLOCKS_S) - 1
        is_within = i >= 0 and record.begin_s < ordered[i].written.returned_s
        return ordered[i] if is_within else None

    return by_time


def _held(
    one: Seen, target: str, timed: Timed, quantiles: Quantiles, rivals: dict[str, float]
) -> Held:
    return Held(
        profile=one.profile, run=one.run, number=one.number, target=target,
        size_bytes=timed.size_bytes, at_s=timed.begin_s, quantiles=quantiles,
        seen_s=timed.elapsed_s, rivals=rivals,
    )  # fmt: skip
