"""Checkpoints on three hosts, one for each path; a forecast after the first part; then the replay.

host1 (replica) ──▶ host2 (direct) ··▶ host3 (both) ──▶ host1        each with links of its own
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from cachexfs.durability.lost_work import Loss
from cachexfs.durability.paths import PATHS, Path
from cachexfs.errors import CacheXError
from cachexfs.measurements.record import Record
from tools.experiments.predicting.replay import Save, Verdict, verdict
from tools.experiments.predicting.site import Writer, limit_hosts, records, site
from tools.experiments.predicting.workload import MIB, Sizes, sizes_without_end
from tools.hosts.host import Host

PEERS = {"host1": "host2", "host2": "host3", "host3": "host1"}
ON = dict(zip(PATHS, PEERS, strict=True))
"""Path -> the host that is configured for it."""
_WRITTEN_DOWN_S = 2.5


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint each `interval_s`, of one file that is closed and not waited for.

    All are of about one size, as those of a job are: the forecast is that of one like the last.
    """

    minutes: float = 8.0
    interval_s: float = 4.0
    sizes: Sizes = Sizes(24 * MIB, 25 * MIB)
    peers_rate: str = "200mbit"
    pfs_rate: str = "200mbit"
    learning: float = 0.35
    """The share of the run before the forecast."""


QUICK = Plan(minutes=1.2, interval_s=2.0, sizes=Sizes(8 * MIB, 9 * MIB))


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it, by path."""

    verdicts: list[Verdict]
    saves: dict[Path, list[Save]]


def perform(plan: Plan, report: Callable[[str], None]) -> Run:
    """Raises `CacheXError`. Nothing is left of the cluster."""
    forecasts: dict[Path, Loss] = {}
    with site(3, peers=PEERS, paths={host: path for path, host in ON.items()}) as cluster:
        limit_hosts(cluster.hosts, plan.peers_rate, plan.pfs_rate)
        hosts = {path: cluster.host(name) for path, name in ON.items()}
        with _Job([Writer(host, "job") for host in hosts.values()], plan) as job:
            report(f"learning, {60 * plan.minutes * plan.learning:.0f} s")
            job.go_on(60.0 * plan.minutes * plan.learning)
            forecasts = {path: forecast_of(host, path) for path, host in hosts.items()}
            since_s = time.time()
            report(f"saving, {60 * plan.minutes * (1 - plan.learning):.0f} s")
            job.go_on(60.0 * plan.minutes * (1 - plan.learning))
        job.wait()
        time.sleep(_WRITTEN_DOWN_S)
        saves = {path: saves_of(records(host)) for path, host in hosts.items()}
    verdicts = [verdict(path, forecasts[path], saves[path], since_s) for path in hosts]
    return Run(verdicts=verdicts, saves=saves)


def forecast_of(host: Host, path: str) -> Loss:
    """What `cachexfs forecast` of a mount says of a death at a random moment, under a path."""
    done = host.cachexfs("forecast", host.mountpoint, "--json")
    told: dict[str, Any] = json.loads(done.stdout)["lost_work"]["at_random"]
    return msgspec.convert(told[path], Loss)


def saves_of(measured: list[Record]) -> list[Save]:
    """The checkpoints of a mount: a file each, from the begin of its capture until it was safe."""
    begins = {record.size_bytes: record.begin_s for record in measured if record.phase == "capture"}
    return [
        Save(begins[record.size_bytes], record.begin_s + record.elapsed_s, record.size_bytes)
        for record in measured
        if record.phase == "safe" and record.state == "ended" and record.size_bytes in begins
    ]


class _Job:
    """Saves on all hosts at the same moments, in a thread for each, within a block."""

    def __init__(self, writers: list[Writer], plan: Plan) -> None:
        self._writers = writers
        self._plan = plan
        self._over = threading.Event()
        self._errors: list[Exception] = []
        self._threads = [
            threading.Thread(target=self._run, args=(writer,), daemon=True) for writer in writers
        ]

    def go_on(self, seconds: float) -> None:
        """Let it save for so long. Raises what a save raised."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s and not self._errors:
            time.sleep(0.1)
        if self._errors:
            raise CacheXError(f"a save failed: {self._errors[0]}")

    def wait(self) -> None:
        """Until all is durable."""
        for writer in self._writers:
            writer.wait()

    def _run(self, writer: Writer) -> None:
        next_s = time.monotonic()
        for size_bytes in sizes_without_end(3, self._plan.sizes):
            if self._over.wait(max(0.0, next_s - time.monotonic())):
                return
            try:
                writer.write(size_bytes, sync=False)
                writer.tidy()
            except OSError as error:
                self._errors.append(error)
                return
            next_s += self._plan.interval_s

    def __enter__(self) -> _Job:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60.0)
