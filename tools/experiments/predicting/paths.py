"""The sweep: links of several speeds, each path measured on a host of its own, and `auto` beside.

    host1 (replica), host2 (direct), host3 (both), host4 (auto) ──▶ host5

At each pair of speeds the mount of `auto` begins without any measurement and learns by a few files.

With a link of its own to peers and to storage, a host loses nothing by going both ways. With
one link for both (`SHARED`) each way takes from the other.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path as File

import msgspec

from cachexfs.config import PathPolicy
from cachexfs.durability.paths import PATHS
from cachexfs.durability.score import Forecast
from cachexfs.durability.writing import WRITES
from cachexfs.measurements.record import Record
from cachexfs.measurements.store import FILE_NAME
from tools.experiments.predicting.site import (
    Writer,
    knowledge,
    limit_hosts,
    records,
    share_link,
    site,
)
from tools.experiments.predicting.sweep import Cell
from tools.experiments.predicting.workload import MIB
from tools.hosts.errors import ClusterError
from tools.hosts.host import Host

_PATH_OF: dict[str, PathPolicy] = {
    "host1": "replica", "host2": "direct", "host3": "both", "host4": "auto"
}  # fmt: skip
PEERS = {**dict.fromkeys(_PATH_OF, "host5"), "host5": "host4"}
_WRITTEN_DOWN_S = 1.6
_FITS_WITHIN_S = 150.0
"""Seconds on a machine that has nothing else to do."""
_NEXT_FIT_S = 45.0
"""The daemon fits again each 35 s at most (docs/durability.md)."""
_LOOK_EVERY_S = 0.3


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Megabits a second; `tries`: of each path under each load. `shared`: the first speed is that
    of a host's only link, the second that of the storage's."""

    rates: tuple[int, ...] = (60, 120, 240, 480)
    loads: tuple[int, ...] = (0, 1)
    size_bytes: int = 8 * MIB
    learning: int = 7
    tries: int = 3
    shared: bool = False


SHARED = Plan(rates=(120, 240), loads=(0,), learning=32, shared=True)
"""It takes so many files before the priors, by which going both ways is safest, have no say."""
QUICK = Plan(rates=(80, 240), loads=(0,), tries=2)


def perform(plan: Plan, report: Callable[[str], None]) -> list[Cell]:
    """Raises `CacheXError`. Nothing is left of the cluster."""
    made = []
    with site(5, peers=PEERS, paths=dict(_PATH_OF)) as cluster:
        writers: dict[str, Writer] = {
            _PATH_OF[host.name]: Writer(host, "job") for host in cluster.hosts[:4]
        }
        if plan.shared:
            share_link(cluster.hosts[:4], cluster.hosts[4])
        for peers, pfs in itertools.product(plan.rates, plan.rates):
            report(f"{'link' if plan.shared else 'peers'} {peers} Mbit/s, storage {pfs} Mbit/s")
            if plan.shared:
                limit_hosts(cluster.hosts[:4], None, f"{peers}mbit")
                cluster.limit_storage(f"{pfs}mbit")
            else:
                limit_hosts(cluster.hosts[:4], f"{peers}mbit", f"{pfs}mbit")
            _learn(writers["auto"], plan)
            made += [_cell(writers, plan, peers, pfs, ahead) for ahead in plan.loads]
    return made


def _learn(writer: Writer, plan: Plan) -> None:
    """Begin anew, write some files and wait for a fit."""
    host = writer.host
    writer.wait()
    store = File(knowledge(host).store)
    assert store.name == FILE_NAME
    host.cachexfs("umount", host.mountpoint)
    store.unlink()
    host.start_mount()
    for _ in range(plan.learning):
        writer.write(writer.unique(plan.size_bytes), sync=True)
        writer.wait()
        writer.tidy()
    _wait_for_a_fit(host)


def _wait_for_a_fit(host: Host) -> None:
    """One after what was written just now, unless one so young is there that none will come."""
    written_s, deadline = time.time(), time.monotonic() + _FITS_WITHIN_S
    while (fitted_s := knowledge(host).fitted_s) < written_s:
        if fitted_s and time.time() > written_s + _NEXT_FIT_S:
            return
        if time.monotonic() > deadline:
            raise ClusterError(f"{host.name}: no fit within {_FITS_WITHIN_S:.0f} s")
        time.sleep(_LOOK_EVERY_S)


def _cell(writers: dict[str, Writer], plan: Plan, peers: int, pfs: int, ahead: int) -> Cell:
    """Each path in turns, so that what the machine does meanwhile meets all alike."""
    begin_s = time.time()
    sizes: dict[str, list[int]] = {path: [] for path in writers}
    for _ in range(plan.tries):
        for path, writer in writers.items():
            for _ in range(ahead):
                writer.write(writer.unique(plan.size_bytes), sync=False)
            sizes[path].append(writer.unique(plan.size_bytes))
            writer.write(sizes[path][-1], sync=True)
            writer.wait()
            writer.tidy()
    time.sleep(_WRITTEN_DOWN_S)
    safe = {path: _safe(writers[path].host, of_path) for path, of_path in sizes.items()}
    return Cell(
        peers_mbit=peers, pfs_mbit=pfs, ahead=ahead,
        safe_s={path: [record.elapsed_s for record in safe[path]] for path in PATHS},
        taken=[record.path for record in safe["auto"]],
        auto_s=[record.elapsed_s for record in safe["auto"]],
        forecasts=[
            forecast for writer in writers.values() for forecast in _whole(writer.host, begin_s)
        ],
    )  # fmt: skip


def _whole(host: Host, since_s: float) -> list[Forecast]:
    """The mount's forecasts of whole writes since then, with what became of them."""
    return [
        forecast
        for record in records(host)
        if record.phase in WRITES.values() and record.begin_s >= since_s
        if (forecast := record.forecast()) is not None
    ]


def _safe(host: Host, sizes: list[int]) -> list[Record]:
    """What these files took to be safe, and by which path."""
    made = [r for r in records(host) if r.phase == "safe" and r.size_bytes in sizes]
    if len(made) < len(sizes) or any(record.state != "ended" for record in made):
        raise ClusterError(f"{host.name}: a file was not measured")
    return made
