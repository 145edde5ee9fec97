"""Processes of this machine, from /proc: named so that a pid used again is not mistaken."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

DEAD = frozenset("ZXx")
"""States of a process that is gone but for its entry (proc(5), stat)."""


@dataclass(frozen=True, slots=True)
class Named:
    """A process: its pid, and its start in clock ticks since boot. `pid` 0: none."""

    pid: int
    start: int

    def is_alive(self) -> bool:
        """Whether this very process runs; a zombie does not."""
        found = stat_of(self.pid) if self.pid else None
        return found is not None and found.start == self.start and found.state not in DEAD


@dataclass(frozen=True, slots=True)
class Stat:
    """What /proc/PID/stat says, as far as it is needed here."""

    pid: int
    state: str
    parent: int
    session: int
    start: int


def stat_of(pid: int) -> Stat | None:
    """None when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return Stat(pid, fields[0], int(fields[1]), int(fields[3]), int(fields[19]))


def everything() -> dict[int, Stat]:
    """All processes that are alive."""
    stats = (stat_of(int(entry)) for entry in os.listdir("/proc") if entry.isdecimal())
    return {stat.pid: stat for stat in stats if stat is not None and stat.state not in DEAD}


def below(roots: Iterable[int], stats: dict[int, Stat]) -> set[int]:
    """The descendants of processes, without themselves."""
    children: dict[int, list[int]] = {}
    for stat in stats.values():
        children.setdefault(stat.parent, []).append(stat.pid)
    found: set[int] = set()
    ahead = list(roots)
    while ahead:
        for pid in children.get(ahead.pop(), ()):
            if pid not in found:
                found.add(pid)
                ahead.append(pid)
    return found


def in_session(session: int, stats: dict[int, Stat]) -> set[int]:
    """The processes of a session."""
    return {stat.pid for stat in stats.values() if stat.session == session}


def with_variables(variables: Iterable[str], stats: dict[int, Stat]) -> set[int]:
    """Processes that were started with all of these `NAME=value`, as far as we may look."""
    wanted = {variable.encode() for variable in variables}
    return {pid for pid in stats if wanted and wanted <= set(_environment(pid))}


def _environment(pid: int) -> Iterator[bytes]:
    with suppress(OSError):
        yield from Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def send(number: int, stats: Iterable[Stat]) -> list[int]:
    """Signal processes that are still who they were; answers whom we may not signal."""
    refused: list[int] = []
    for stat in stats:
        try:
            descriptor = os.pidfd_open(stat.pid)
        except OSError:
            continue
        try:
            now = stat_of(stat.pid)
            if now is not None and now.start == stat.start:
                signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            continue
        except PermissionError:
            refused.append(stat.pid)
        finally:
            os.close(descriptor)
    return refused
