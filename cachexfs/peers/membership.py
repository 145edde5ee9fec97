"""The members of this moment: read when a daemon starts, and again when their file changes."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import trio

from cachexfs.config import Config, Member
from cachexfs.errors import ConfigError
from cachexfs.peers import members
from cachexfs.status.report import Problem

LOOK_EVERY_S = 2.0
"""How often the file is looked at: the longest that a change of it stays unseen."""

log = logging.getLogger(__name__)


class _Mark(NamedTuple):
    """What tells that a file was written or replaced."""

    ino: int
    mtime_ns: int
    size_bytes: int


def resolve(config: Config, environ: Mapping[str, str] = os.environ) -> Config:
    """The configuration with the members that it names elsewhere. Raises `ConfigError`."""
    match config.members.source:
        case "slurm":
            return msgspec.structs.replace(
                config, peers=members.from_slurm(environ, config.members)
            )
        case "file":
            return msgspec.structs.replace(config, peers=_read(config))
    return config


class Membership:
    """The members, and who wants to know of changes. `run` must be running for changes to be seen.

    A file that cannot be read, or says nothing sensible, changes nothing but `problems`.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self.members = config.peers
        self._mark = _mark(config)
        self._trouble = ""
        self._found: tuple[Member, ...] | None = None
        self._listeners: list[Callable[[tuple[Member, ...]], None]] = []

    def listen(self, listener: Callable[[tuple[Member, ...]], None]) -> None:
        """Call with the members after each change."""
        self._listeners.append(listener)

    async def run(self) -> None:
        """Look at the file until cancelled; returns at once when the members are in no file."""
        while self._config.members.source == "file":
            await trio.sleep(LOOK_EVERY_S)
            await trio.to_thread.run_sync(self._look)
            self._tell()

    def problems(self) -> list[Problem]:
        """What a person should know."""
        if not self._trouble:
            return []
        return [
            Problem(
                "MembersUnreadable", self._trouble, "mend the file; the members stay as they were"
            )
        ]

    def _look(self) -> None:
        try:
            mark = _mark(self._config)
            if mark != self._mark:
                self._found, self._mark = _read(self._config), mark
            self._trouble = ""
        except ConfigError as error:
            self._trouble = str(error)

    def _tell(self) -> None:
        found, self._found = self._found, None
        if found is None or found == self.members:
            return
        log.info("the members are now: %s", ", ".join(member.name for member in found))
        self.members = found
        for listener in self._listeners:
            listener(found)


def _mark(config: Config) -> _Mark | None:
    if config.members.source != "file":
        return None
    try:
        status = os.stat(config.members.file or "")
    except OSError as error:
        raise ConfigError(f"members.file: {config.members.file}: {error.strerror}") from None
    return _Mark(status.st_ino, status.st_mtime_ns, status.st_size)


def _read(config: Config) -> tuple[Member, ...]:
    path = Path(config.members.file or "")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"members.file: {path} cannot be read: {error}") from None
    return members.parse(text, config.members, str(path))
