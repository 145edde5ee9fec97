"""Flush: from close to `durable` without peers, beside cp and fsync of the same file."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cachexfs.demo.node import Node
from tools.benchmarks.bench import Bench
from tools.benchmarks.figures import Series, in_turns
from tools.benchmarks.following import until_level
from tools.benchmarks.memory import settle
from tools.benchmarks.writing import write


def measure(bench: Bench, size_bytes: int, rounds: int) -> list[Series]:
    """Both, in turns, into the same directory."""
    source = bench.directory("source")
    (node,) = bench.nodes("a", source, 2 * size_bytes)
    node.start_mount()
    memory = bench.private_tmpfs("native", 2 * size_bytes) or bench.in_shm("native")
    original = memory / "original"
    write(original, size_bytes)
    measures: dict[str, Callable[[], float]] = {
        "cp and fsync": partial(_copied, original, source / "copied"),
        "mount, close to durable": partial(_durable, node, size_bytes),
    }
    for warm_up in measures.values():
        warm_up()
    return in_turns(measures, rounds, size_bytes)


def _copied(original: Path, target: Path) -> float:
    settle(2 * original.stat().st_size)
    begin = time.perf_counter()
    subprocess.run(["cp", original, target], check=True)
    for path in (target, target.parent):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
    took = time.perf_counter() - begin
    target.unlink()
    return took


def _durable(node: Node, size_bytes: int) -> float:
    settle(3 * size_bytes)
    path = node.mountpoint / "flush"
    write(path, size_bytes)
    begin = time.perf_counter()
    took = until_level(node, path.name, "durable", begin)
    path.unlink()
    return took
