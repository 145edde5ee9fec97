"""Which jobs have a checkpoint that is safe, as CacheX-FS says: through `cachexfs.client` only.

The mount knows which job wrote a file (`job` in its report: "lazer:7", "slurm:42") and lists what
is not durable yet. A job's checkpoint is safe when none of the files that it had closed is less
safe than the level any more. That is polled; what is asked is one report per mount.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import trio

from cachexfs.client import Client, all_mounts
from lazerd.backend.protocol import Evidence, Report, Rung, Saved, Together, Working

log = logging.getLogger(__name__)

LEVELS = ("open", "captured", "replicated", "durable")
"""From the least safe to the safest."""
PREFIXES = {"local": "lazer:", "slurm": "slurm:"}
"""What the names of a backend's jobs begin with, there."""


@dataclass(slots=True)
class Closed:
    """Files of a job that it has closed: mount point and path of each, and when the last was."""

    paths: set[tuple[str, str]] = field(default_factory=set)
    at_s: float = 0.0


class Checkpoints:
    """Follows the files of jobs over the polls. Pure: reports of mounts in, candidates out."""

    def __init__(self, prefix: str, level: str) -> None:
        self._prefix = prefix
        self._unsafe_states = LEVELS[1 : LEVELS.index(level)]
        self._unsafe: dict[str, Closed] = {}

    def see(self, mounts: Sequence[dict[str, Any]], now_s: float) -> dict[str, Closed]:
        """The jobs none of whose files is listed as unsafe any more, with those that were.

        Such a file is safe by now, or gone: `is_safe` says which. A mount that is not among
        `mounts` has not answered: nothing has changed there.
        """
        answered = {mount["mountpoint"] for mount in mounts}
        unsafe: dict[str, Closed] = {}
        for mount in mounts:
            for file in mount.get("pending", ()):
                self._note(unsafe, mount["mountpoint"], file, now_s)
        settled: dict[str, Closed] = {}
        for job_id, before in self._unsafe.items():
            silent = {place for place in before.paths if place[0] not in answered}
            if job_id in unsafe or silent:
                now = unsafe.setdefault(job_id, Closed())
                now.paths |= before.paths
                now.at_s = max(now.at_s, before.at_s)
            else:
                settled[job_id] = before
        self._unsafe = unsafe
        return settled

    def _note(
        self, unsafe: dict[str, Closed], mountpoint: str, file: dict[str, Any], now_s: float
    ) -> None:
        job = str(file.get("job", ""))
        if job.startswith(self._prefix) and file["state"] in self._unsafe_states:
            found = unsafe.setdefault(job[len(self._prefix) :], Closed())
            found.paths.add((mountpoint, file["path"]))
            found.at_s = max(found.at_s, now_s - float(file["age_s"]))

    def is_safe(self, states: Sequence[str]) -> bool:
        """Whether files that are there in these states make a safe checkpoint."""
        return bool(states) and not set(states) & {"open", "lost", *self._unsafe_states}


class Mounts(Protocol):
    """The mounts of this machine. Its calls block."""

    def reports(self) -> Sequence[dict[str, Any]]:
        """One report of each mount that answers."""
        ...

    def states(self, places: Iterable[tuple[str, str]]) -> Sequence[str]:
        """The states of those of these files that are there."""
        ...


async def follow(
    checkpoints: Checkpoints,
    mounts: Mounts,
    reports: trio.MemorySendChannel[Report | Together],
    poll_s: float,
    is_wanted: Callable[[], bool],
) -> None:
    """Ask every `poll_s` while `is_wanted`, until cancelled.

    A mount that does not answer says nothing. Files that are safe before they were ever seen are
    not noticed: the engine then takes the checkpoint before for the last one.
    """
    while True:
        await trio.sleep(poll_s)
        if not is_wanted():
            continue
        answers = await trio.to_thread.run_sync(mounts.reports, abandon_on_cancel=True)
        now_s = time.time()
        for job_id, closed in checkpoints.see(answers, now_s).items():
            ask = partial(mounts.states, closed.paths)
            if checkpoints.is_safe(await trio.to_thread.run_sync(ask, abandon_on_cancel=True)):
                said = Working(job_id, Evidence(Rung.SAID, "its first checkpoint is safe"))
                await reports.send(Together((said, Saved(job_id, max(0.0, now_s - closed.at_s)))))


class CacheXMounts:
    """Every mount of CacheX-FS with a daemon below a state directory."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir

    def reports(self) -> list[dict[str, Any]]:
        """One report of each mount that answers."""
        clients = all_mounts(self._state_dir)
        return [mount for client in clients for mount in _ask(client, "report", "mounts")]

    def states(self, places: Iterable[tuple[str, str]]) -> list[str]:
        """The states of those of these files that are there."""
        found: list[str] = []
        by_mount = {
            mount["mountpoint"]: client
            for client in all_mounts(self._state_dir)
            for mount in _ask(client, "report", "mounts")
        }
        for mountpoint, path in places:
            if mountpoint in by_mount:
                listed = _ask(by_mount[mountpoint], "ls", None, paths=[path])
                found += [file["state"] for file in listed]
        return found


def _ask(client: Client, verb: str, key: str | None, **arguments: Any) -> list[dict[str, Any]]:
    try:
        answer = client.ask(verb, **arguments)
    except Exception as error:  # whatever is wrong there is no fault of the jobs
        log.debug("%s: %s", client.socket_path, error)
        return []
    found: list[dict[str, Any]] = answer[key] if key else answer
    return found
