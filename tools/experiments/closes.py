"""What a close costs where all nodes see each other's files, beside where they do not.

    python -m tools.experiments.closes [--nodes 4] [--files 1000] [--turns 7] [--threads N ...]

Two clusters of hosts over directories, one with `[members] visible = true` and one with false. In
turns, on the first host of each: so many files of 4 KiB are created, written and closed in a new
directory by one program, one after the other and by several threads. Needs root.
"""

from __future__ import annotations

import statistics
import sys

import click
import msgspec

from cachexfs.config import Config
from tools.hosts.cluster import Cluster

_PROGRAM = """
import os, sys, threading, time
directory, files, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
os.makedirs(directory)
data = b"x" * 4096
def some(first):
    for index in range(first, files, threads):
        with open(f"{directory}/{index}", "wb", buffering=0) as file:
            file.write(data)
at_work = [threading.Thread(target=some, args=(first,)) for first in range(threads)]
begin = time.perf_counter()
for each in at_work: each.start()
for each in at_work: each.join()
print(time.perf_counter() - begin)
"""


@click.command()
@click.option("--nodes", default=4, show_default=True, help="Hosts of each cluster.")
@click.option("--files", default=1000, show_default=True, help="In each turn.")
@click.option("--turns", default=7, show_default=True, help="Of each; the first is not counted.")
@click.option("--threads", default=(1, 4), show_default=True, multiple=True)
def main(nodes: int, files: int, turns: int, threads: tuple[int, ...]) -> None:
    """Measure, and print medians, the smallest and the largest, and ratios."""
    with _cluster(nodes, visible=True) as seen, _cluster(nodes, visible=False) as unseen:
        for number in threads:
            took: dict[bool, list[float]] = {True: [], False: []}
            for turn in range(turns):
                for visible in (True, False) if turn % 2 else (False, True):
                    cluster = seen if visible else unseen
                    took[visible].append(_turn(cluster, f"{number}-{turn}", files, number))
            _report(number, files, took)


def _cluster(nodes: int, *, visible: bool) -> Cluster:
    def configure(config: Config) -> Config:
        members = msgspec.structs.replace(config.members, visible=visible)
        return msgspec.structs.replace(config, members=members)

    return Cluster(nodes=nodes, pfs="dir", fsync="captured", configure=configure)


def _turn(cluster: Cluster, name: str, files: int, threads: int) -> float:
    """Seconds."""
    host = cluster.host(1)
    directory = host.mountpoint / name
    program = [sys.executable, "-c", _PROGRAM, str(directory), str(files), str(threads)]
    taken_s = float(host.exec(program, timeout_s=300).stdout)
    host.cachexfs("wait", directory, "--for", "durable", "--timeout", "120s", timeout_s=130)
    return taken_s


def _report(threads: int, files: int, took: dict[bool, list[float]]) -> None:
    medians = {visible: statistics.median(times[1:]) for visible, times in took.items()}
    for visible, times in took.items():
        each_us = [1e6 * taken_s / files for taken_s in times[1:]]
        label = "visible" if visible else "not visible"
        click.echo(
            f"{threads} threads, {label:11}: {1e6 * medians[visible] / files:7.0f} us a file"
            f" ({min(each_us):.0f} to {max(each_us):.0f})"
        )
    click.echo(f"{threads} threads, ratio of medians: {medians[True] / medians[False]:.2f}")


if __name__ == "__main__":
    main()
