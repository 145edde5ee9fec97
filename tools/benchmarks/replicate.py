"""Replicate: from close to `replicated`, beside a plain socket copy of the same file."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cachexfs.demo.faults import Fault
from cachexfs.demo.node import Node
from cachexfs.demo.process import Child
from tools.benchmarks import cpu
from tools.benchmarks.bench import Bench
from tools.benchmarks.figures import Series, in_turns
from tools.benchmarks.following import until_level
from tools.benchmarks.memory import settle
from tools.benchmarks.writing import write

START_S = 10.0
Cpu = dict[str, float]


def measure(
    bench: Bench, size_bytes: int, rounds: int, costs: Cpu, *, blocked: bool = True
) -> list[Series]:
    """Both, in turns. `blocked`: the way to the shared storage does not run beside it.

    `costs` is given the CPU seconds per GB of the mount's daemon and of the peer's.
    """
    storage = bench.blocked_storage()
    a, b = bench.nodes("ab", storage.mountpoint, 2 * size_bytes)
    b.start_peer()
    a.start_mount()
    if blocked:
        storage.set_fault(Fault(errno="EIO", ops=("create", "write", "unlink", "rename")))
    original = bench.in_shm("plain") / "original"
    write(original, size_bytes)
    receiver = Child(
        "tools.benchmarks.receiver",
        [bench.directory("plain-store")],
        bench.home / "receiver.log",
        output=bench.home / "receiver.port",
    )
    try:
        port = bench.waiting.until(
            lambda: int((bench.home / "receiver.port").read_text() or 0), "the receiver", START_S
        )
        measures: dict[str, Callable[[], float]] = {
            "plain socket copy": partial(_plain, original, port),
            "mount, close to replicated": partial(_replicated, a, size_bytes),
        }
        for warm_up in measures.values():
            warm_up()
        before = _cpu_used(a, b)
        series = in_turns(measures, rounds, size_bytes)
        moved_gb = rounds * size_bytes / 1e9
        after = _cpu_used(a, b)
        costs.update({who: (after[who] - before[who]) / moved_gb for who in after})
        return series
    finally:
        receiver.end()


def _cpu_used(a: Node, b: Node) -> Cpu:
    assert b.peer_daemon is not None
    return {"mount": cpu.used_s(a.report()["pid"]), "peer": cpu.used_s(b.peer_daemon.pid)}


def _plain(original: Path, port: int) -> float:
    settle(2 * original.stat().st_size)
    begin = time.perf_counter()
    with original.open("rb") as file, socket.create_connection(("127.0.0.1", port)) as link:
        link.sendfile(file)
        link.shutdown(socket.SHUT_WR)
        link.recv(1)
    return time.perf_counter() - begin


def _replicated(node: Node, size_bytes: int) -> float:
    settle(3 * size_bytes)
    path = node.mountpoint / "replicate"
    write(path, size_bytes)
    begin = time.perf_counter()
    took = until_level(node, path.name, "replicated", begin)
    path.unlink()
    until_gone(node)
    return took


def until_gone(node: Node) -> None:
    """Let the peer hear of the removal."""
    node.waiting.until(
        lambda: not any(peer["behind_bytes"] for peer in node.report()["peers"]),
        "the peer is up to date",
        START_S,
    )
