"""Capture: what a program sees when it writes into the mount and reads back, beside other places.

Two mounts in one run, so that both data paths are measured under the same conditions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

from cachexfs.demo.node import Node
from tools.benchmarks.bench import Bench
from tools.benchmarks.figures import Series, in_turns
from tools.benchmarks.memory import settle
from tools.benchmarks.writing import paths_in, timed_reads, timed_writes

SETTLED_S = 300.0
PATHS: tuple[Literal["portable", "auto"], ...] = ("portable", "auto")
Measures = dict[str, Callable[[], float]]


def measure_writes(bench: Bench, size_bytes: int, rounds: int, streams: int) -> list[Series]:
    """All places, in turns, after one round that is not counted: memory is touched by it."""
    source = bench.directory("beside-the-mounts")
    places = memory_places(bench, size_bytes)
    measures: Measures = {
        name: partial(_write, path, size_bytes, streams)
        for name, path in {"source directory": source, **places}.items()
    }
    for name, node in mounts(bench, size_bytes).items():
        measures[name] = partial(_write_mount, node, size_bytes, streams)
    for warm_up in measures.values():
        warm_up()
    return in_turns(measures, rounds, size_bytes // streams * streams)


def measure_reads(bench: Bench, size_bytes: int, rounds: int, streams: int) -> list[Series]:
    """Files that were written once, read in turns; in the mounts they are durable, and in RAM."""
    measures: Measures = {}
    for name, path in memory_places(bench, size_bytes).items():
        timed_writes(paths_in(path, streams), size_bytes)
        measures[name] = partial(_read, path, size_bytes, streams)
    for name, node in mounts(bench, size_bytes).items():
        timed_writes(paths_in(node.mountpoint, streams), size_bytes)
        quiet(node)
        measures[name] = partial(_read, node.mountpoint, size_bytes, streams)
    for warm_up in measures.values():
        warm_up()
    return in_turns(measures, rounds, size_bytes // streams * streams)


def memory_places(bench: Bench, size_bytes: int) -> dict[str, Path]:
    """Memory without us: as the system sets it up, and as the RAM tier does."""
    places = {"native /dev/shm": bench.in_shm("native")}
    native = bench.private_tmpfs("native", 2 * size_bytes)
    if native is not None:
        places["native tmpfs as the RAM tier's"] = native
    return places


def mounts(bench: Bench, size_bytes: int) -> dict[str, Node]:
    """A mount for each data path; the last one is the mount as it is by default."""
    found = {}
    for data_path in PATHS:
        source = bench.directory(f"source-{data_path}")
        (node,) = bench.nodes([data_path], source, 2 * size_bytes)
        node.data_path = data_path
        node.start_mount()
        asked = "as it is by default, " if data_path == "auto" else ""
        found[f"mount, {asked}{node.report()['data_path']}"] = node
    return found


def quiet(node: Node) -> None:
    """Nothing is left to publish."""
    node.waiting.until(lambda: not node.report()["pending"], "the mount is quiet", SETTLED_S)


def _write(directory: Path, size_bytes: int, streams: int) -> float:
    """With nothing left to write back from before, and memory at hand; deleted after it."""
    settle(2 * size_bytes)
    paths = paths_in(directory, streams)
    took = timed_writes(paths, size_bytes)
    for path in paths:
        path.unlink()
    return took


def _write_mount(node: Node, size_bytes: int, streams: int) -> float:
    took = _write(node.mountpoint, size_bytes, streams)
    quiet(node)
    return took


def _read(directory: Path, size_bytes: int, streams: int) -> float:
    return timed_reads(paths_in(directory, streams), size_bytes)
