"""Small operations: what each costs on a tmpfs, through plain pyfuse3, and through the mount."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cachexfs.demo.node import Node
from tools.benchmarks.bench import Bench
from tools.benchmarks.costs import Costs
from tools.benchmarks.following import until_level

SETTLED_S = 300.0
ALONE = 50
"""Files that are made one at a time, with nothing left to do when the next one is."""

DataPath = Literal["auto", "portable"]
_RAM_BYTES = 1 << 30
_FORGOTTEN_S = 1.1
"""Longer than the kernel goes without asking again (`mount.attributes.TIMEOUT_S`)."""

_CONTENT = bytes(range(256)) * 16


@dataclass(frozen=True)
class Place:
    """A directory to measure in; `quiet` returns when nothing is done for it in the background."""

    name: str
    path: Path
    quiet: Callable[[], None]
    durable: Callable[[Path], None]


def measure(bench: Bench, files: int, rounds: int) -> list[Costs]:
    """All places, in turns, after one round of a few files that is not counted."""
    memory = bench.private_tmpfs("native", _RAM_BYTES) or bench.in_shm("native")
    places = [
        Place("native tmpfs", memory, lambda: None, lambda path: None),
        mounted(bench, "plain", "portable"),
        mounted(bench, "mount", "auto"),
    ]
    costs = [Costs(place.name) for place in places]
    for place in places:
        one_round(place, "warm-up", min(files, 100), Costs(place.name))
    for number in range(rounds):
        first = number % len(places)
        order = list(zip(places, costs, strict=True))
        for place, cost in order[first:] + order[:first]:
            one_round(place, f"round-{number}", files, cost)
    return costs


def mounted(bench: Bench, name: str, data_path: DataPath) -> Place:
    """A mount of its own, over a source of its own."""
    source = bench.directory(f"source-{name}")
    (node,) = bench.nodes([name], source, _RAM_BYTES)
    node.data_path = data_path
    node.start_mount()
    used = node.report()["data_path"]
    title = "plain pyfuse3" if data_path == "portable" else f"mount ({used})"
    return Place(title, node.mountpoint, lambda: quiet(node), lambda path: durable(node, path))


def quiet(node: Node) -> None:
    """Nothing is left to publish."""
    node.waiting.until(lambda: not node.report()["pending"], "the mount is quiet", SETTLED_S)


def durable(node: Node, path: Path) -> None:
    """The file is on the shared file system."""
    until_level(node, str(path.relative_to(node.mountpoint)), "durable", 0.0)


def one_round(place: Place, name: str, files: int, costs: Costs) -> None:
    """Every operation once for every file."""
    directory = place.path / name
    directory.mkdir()
    for number in range(min(ALONE, files)):
        path = directory / f"alone-{number}"
        costs.note("create, write 4 KiB, close", total(make, [path]))
        place.durable(path)
    paths = [directory / f"file-{number}" for number in range(files)]
    costs.note("the same, many in a row", total(make, paths))
    place.quiet()
    time.sleep(_FORGOTTEN_S)
    costs.note("stat", total(os.stat, paths))
    time.sleep(_FORGOTTEN_S)
    begin = time.perf_counter()
    found = len(os.listdir(directory))
    costs.note("readdir, per entry", (time.perf_counter() - begin) / found)
    costs.note("rename", total(rename, paths))
    place.quiet()
    costs.note("unlink", total(os.unlink, [renamed(path) for path in paths]))
    place.quiet()


def make(path: Path) -> None:
    """A small file, as a program writes one."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    os.write(fd, _CONTENT)
    os.close(fd)


def renamed(path: Path) -> Path:
    """The second name of a file."""
    return path.with_name(f"renamed-{path.name}")


def rename(path: Path) -> None:
    """Give a file its second name."""
    os.rename(path, renamed(path))


def total(operation: Callable[[Path], object], paths: Sequence[Path]) -> float:
    """Seconds for one, with all in a row."""
    begin = time.perf_counter()
    for path in paths:
        operation(path)
    return (time.perf_counter() - begin) / len(paths)
