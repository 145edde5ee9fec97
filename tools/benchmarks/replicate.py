"""Replicate: from close to `replicated`, beside a plain socket copy of the same file.

Two mounts, one for each data path, so that what a gigabyte costs their daemons in CPU time, from
the first write to `replicated`, can be held side by side.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median

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
    """All, in turns. `blocked`: the way to the shared storage does not run beside it.

    `costs` is given the CPU seconds per GB of each mount's daemon and of the peer's; what they are
    above the plain sendfile is ours.
    """
    storage = bench.blocked_storage()
    portable, default, peer = started(bench, storage.mountpoint, size_bytes)
    if blocked:
        storage.set_fault(Fault(errno="EIO", ops=("create", "write", "unlink", "rename")))
    original = bench.in_shm("plain") / "original"
    write(original, size_bytes)
    daemons = {"mount portable": portable, "mount by default": default, "peer": peer}
    sending: list[float] = []
    with receiver(bench) as port:
        measures: dict[str, Callable[[], float]] = {
            "plain socket copy": partial(_plain, original, port, sending),
            "mount, portable, close to replicated": partial(_replicated, portable, size_bytes),
            "mount, close to replicated": partial(_replicated, default, size_bytes),
        }
        for warm_up in measures.values():
            warm_up()
        before = {name: cpu.used_s(_pid(node)) for name, node in daemons.items()}
        series = in_turns(measures, rounds, size_bytes)
        costs["plain sendfile"] = median(sending) / (size_bytes / 1e9)
        for name, node in daemons.items():
            files = rounds * (2 if node is peer else 1)
            costs[name] = (cpu.used_s(_pid(node)) - before[name]) / (files * size_bytes / 1e9)
        return series


def started(bench: Bench, source: Path, size_bytes: int) -> tuple[Node, Node, Node]:
    """A portable mount, one as it is by default, and the peer of both."""
    portable, default, peer = bench.nodes(["p", "a", "b"], source, 2 * size_bytes)
    for node in (portable, default):  # which are no peers to each other
        node.members = (node.member, peer.member)
    portable.data_path = "portable"
    peer.start_peer()
    portable.start_mount()
    default.start_mount()
    return portable, default, peer


@contextlib.contextmanager
def receiver(bench: Bench) -> Iterator[int]:
    """The plain end of a socket copy, by its port."""
    printed = bench.home / "receiver.port"
    child = Child(
        "tools.benchmarks.receiver",
        [bench.directory("plain-store")],
        bench.home / "receiver.log",
        output=printed,
    )
    try:
        yield bench.waiting.until(
            lambda: int(printed.read_text() or 0), "the receiver listens", START_S
        )
    finally:
        child.end()


def _pid(node: Node) -> int:
    return node.peer_daemon.pid if node.peer_daemon else node.report()["pid"]


def _plain(original: Path, port: int, sending: list[float]) -> float:
    """`sending` is given the CPU seconds of the sender alone."""
    settle(2 * original.stat().st_size)
    begin = time.perf_counter()
    with original.open("rb") as file, socket.create_connection(("127.0.0.1", port)) as link:
        used = time.thread_time()
        link.sendfile(file)
        sending.append(time.thread_time() - used)
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
