"""Events and actions as JSON text and back: what the store keeps of each cycle.

A table of kinds by name, so that an old log names what it holds. Infinity is written as Python's
json writes it (`Infinity`): a job that never saves has an infinite interval between checkpoints.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, get_args

import msgspec

from lazerd.model.actions import Action
from lazerd.model.events import Event

_KINDS: dict[str, type] = {kind.__name__: kind for kind in (*get_args(Event), *get_args(Action))}


class Unreadable(ValueError):
    """A record of a kind, or with fields, that this version does not know."""


def encode(things: Iterable[Event | Action]) -> str:
    """`[["SetupEnded", {"job_id": "7"}], ...]`."""
    plain = [[type(thing).__name__, msgspec.to_builtins(thing)] for thing in things]
    return json.dumps(plain, separators=(",", ":"))


def decode(text: str) -> list[Any]:
    """The events or actions of `encode`. Raises `Unreadable`."""
    try:
        return [msgspec.convert(fields, _KINDS[kind]) for kind, fields in json.loads(text)]
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable(f"{text[:200]!r}: {error!r}") from None
