"""Capture: what a program sees when it writes into the mount, beside other places."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from cachexfs.demo.node import Node
from tools.benchmarks.bench import Bench
from tools.benchmarks.figures import Series, in_turns
from tools.benchmarks.memory import settle
from tools.benchmarks.writing import timed_streams

SETTLED_S = 30.0


def measure(bench: Bench, size_bytes: int, rounds: int, streams: int) -> list[Series]:
    """All places, in turns, after one round that is not counted: memory is touched by it."""
    source = bench.directory(f"source-{streams}")
    (node,) = bench.nodes(str(streams), source, 2 * size_bytes)
    node.start_mount()
    shared_memory = bench.in_shm(f"streams-{streams}")
    native = bench.private_tmpfs(f"native-{streams}", 2 * size_bytes)
    beside = source / "beside-the-mount"  # other names than those that the mount removes there
    beside.mkdir()
    places = {"source directory": beside, "native /dev/shm": shared_memory}
    if native is not None:
        places["native tmpfs as the RAM tier's"] = native
    measures: dict[str, Callable[[], float]] = {
        name: partial(_quiet, timed_streams, path, size_bytes, streams)
        for name, path in places.items()
    }
    measures["mount"] = partial(_in_mount, node, size_bytes, streams)
    for warm_up in measures.values():
        warm_up()
    try:
        return in_turns(measures, rounds, size_bytes // streams * streams)
    finally:
        node.end()
        node.wipe()


def _quiet(
    timed: Callable[[Path, int, int], float], path: Path, size_bytes: int, streams: int
) -> float:
    """With nothing left to write back from before, and memory at hand."""
    settle(2 * size_bytes)
    return timed(path, size_bytes, streams)


def _in_mount(node: Node, size_bytes: int, streams: int) -> float:
    took = _quiet(timed_streams, node.mountpoint, size_bytes, streams)
    node.waiting.until(lambda: not node.report()["pending"], "the mount is quiet", SETTLED_S)
    return took
