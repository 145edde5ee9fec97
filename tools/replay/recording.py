"""An event log: what the engine was told and when, and a fingerprint of what it answered.

A line of JSON each. The first names the engine; each other one is an instant. A bug report that
holds such a log is a test: `again` gives the events to a new engine and finds the first answer that
differs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO, get_args

import msgspec

from lazerd.engine import Engine
from lazerd.model.actions import Action
from lazerd.model.cluster import Cluster
from lazerd.model.events import Event
from lazerd.policy.names import Information, policy_named
from tools.replay.errors import LogError
from tools.replay.traces.table import opened

VERSION = 1
_EVENTS: dict[str, type] = {kind.__name__: kind for kind in get_args(Event)}


class Recorder:
    """Writes a log; an observer of a driver, and a context that closes the file."""

    def __init__(self, path: Path, policy: str, information: Information, cluster: Cluster) -> None:
        try:
            self._file: TextIO = path.open("w", encoding="utf-8")
        except OSError as error:
            raise LogError(path, None, f"it cannot be written: {error.strerror}") from error
        self._write(
            {
                "version": VERSION,
                "policy": policy,
                "information": information.value,
                "nodes": cluster.size,
            }
        )

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def __call__(self, now_s: int, events: Sequence[Event], actions: Sequence[Action]) -> None:
        """Note one instant."""
        told = [[type(event).__name__, msgspec.to_builtins(event)] for event in events]
        self._write({"at_s": now_s, "events": told, "answer": fingerprint(actions)})

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")


def fingerprint(actions: Sequence[Action]) -> str:
    """The same for the same actions, with all the numbers in them."""
    return blake2b(repr(tuple(actions)).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class Replayed:
    """What a log led to."""

    engine: Engine
    instants: int
    events: dict[str, int]
    """How many of each kind."""
    state: str
    """A fingerprint of all answers, one after the other."""


def again(path: Path, *, validate: bool = False) -> Replayed:
    """Give a log to a new engine. Raises LogError at the first answer that differs."""
    instants, kinds, state = 0, Counter[str](), blake2b(digest_size=8)
    with opened(path) as text:
        engine = _engine(path, text.readline())
        for line, (at_s, events, answer) in _instants(path, text):
            given = fingerprint(engine.handle_all(events, at_s))
            if given != answer:
                raise LogError(path, line, f"at {at_s} s the engine answers otherwise than it did")
            if validate:
                engine.validate()
            instants += 1
            kinds.update(type(event).__name__ for event in events)
            state.update(given.encode())
    return Replayed(engine, instants, dict(sorted(kinds.items())), state.hexdigest())


def _engine(path: Path, line: str) -> Engine:
    try:
        head = json.loads(line)
        if head["version"] != VERSION:
            raise ValueError(f"version {head['version']}")
        policy = policy_named(head["policy"], Information(head["information"]))
        return Engine(Cluster(head["nodes"]), policy)
    except (ValueError, KeyError, TypeError) as error:
        raise LogError(path, 1, f"it is not the head of an event log: {error}") from error


def _instants(path: Path, text: TextIO) -> Iterator[tuple[int, tuple[float, list[Event], str]]]:
    for line, content in enumerate(text, start=2):
        try:
            noted = json.loads(content)
            yield (
                line,
                (noted["at_s"], [_event(*each) for each in noted["events"]], noted["answer"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise LogError(path, line, f"it is not an instant: {error}") from error


def _event(kind: str, fields: dict[str, Any]) -> Event:
    event: Event = msgspec.convert(fields, _EVENTS[kind], strict=False)
    return event
