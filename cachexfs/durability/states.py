"""The states of a file and the phases that lead from one to the next, as data.

The tables here are the source of the pictures in `docs/design.md`; a test compares the two.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import NamedTuple


class State(IntEnum):
    """How safe a file is, worst first; a directory is as safe as its weakest file."""

    GONE = -1
    LOST = 0
    OPEN = 1
    CAPTURED = 2
    REPLICATED = 3
    DURABLE = 4

    @property
    def label(self) -> str:
        """The name that people and programs read: `"captured"`."""
        return self.name.lower()


LEVELS = {state.label: state for state in (State.CAPTURED, State.REPLICATED, State.DURABLE)}
"""The levels that fsync and `cachexfs wait` can wait for."""


class Phase(NamedTuple):
    """A stretch of a file's way: what happens in it and what the file survives after it."""

    name: str
    happens: str
    ends_in: State | None
    survives: str


PHASES = (
    Phase(
        "capture",
        "the program writes into the RAM tier",
        State.CAPTURED,
        "death of the program and of our daemon",
    ),
    Phase(
        "replicate",
        "copied to a peer's NVMe, fsynced there, acknowledged with a checksum",
        State.REPLICATED,
        "loss of this node, RAM and disk",
    ),
    Phase("flush", "copied to a temporary name on the shared file system", None, "nothing more"),
    Phase(
        "commit",
        "fsync, checksum checked, renamed into place, directory fsynced",
        State.DURABLE,
        "loss of this node and its peers",
    ),
)


class Step(Enum):
    """What can happen to a file, once an event has been held against what is known of it."""

    WRITTEN = "the content changed"
    SETTLED = "closed, fsynced or renamed with this content"
    COPIED = "enough peers hold this content"
    COMMITTED = "the shared file system holds this content"
    COPIES_LOST = "too few peers hold this content now; the RAM tier still does"
    VANISHED = "no tier holds this content any more"
    DELETED = "the last name is gone"


class Effect(Enum):
    """What has to be done about it."""

    REPLICATE = "replicate"
    FLUSH = "flush"
    CANCEL = "cancel"


class Move(NamedTuple):
    """Where a step leads, and what it sets off."""

    to: State
    effects: tuple[Effect, ...] = ()


_S, _E = State, Effect
_STAYS_OPEN = Move(_S.OPEN)
_REOPENED = Move(_S.OPEN, (_E.CANCEL,))
_DELETED = Move(_S.GONE, (_E.CANCEL,))
_DURABLE = Move(_S.DURABLE)

TABLE: dict[State, dict[Step, Move]] = {
    _S.OPEN: {
        Step.WRITTEN: _STAYS_OPEN,
        Step.SETTLED: Move(_S.CAPTURED, (_E.REPLICATE, _E.FLUSH)),
        Step.VANISHED: Move(_S.LOST),
        Step.DELETED: _DELETED,
    },
    _S.CAPTURED: {
        Step.WRITTEN: _REOPENED,
        Step.COPIED: Move(_S.REPLICATED),
        Step.COMMITTED: _DURABLE,
        Step.COPIES_LOST: Move(_S.CAPTURED, (_E.REPLICATE,)),
        Step.VANISHED: Move(_S.LOST),
        Step.DELETED: _DELETED,
    },
    _S.REPLICATED: {
        Step.WRITTEN: _REOPENED,
        Step.COPIED: Move(_S.REPLICATED),
        Step.COMMITTED: _DURABLE,
        Step.COPIES_LOST: Move(_S.CAPTURED, (_E.REPLICATE,)),
        Step.VANISHED: Move(_S.LOST),
        Step.DELETED: _DELETED,
    },
    _S.DURABLE: {
        Step.WRITTEN: _REOPENED,
        Step.COPIED: _DURABLE,
        Step.COMMITTED: _DURABLE,
        Step.COPIES_LOST: _DURABLE,
        Step.DELETED: _DELETED,
    },
    _S.LOST: {
        Step.WRITTEN: _STAYS_OPEN,
        Step.COPIED: Move(_S.REPLICATED),
        Step.COMMITTED: _DURABLE,
        Step.DELETED: _DELETED,
    },
    _S.GONE: {},
}
"""state -> step -> move. A step that is missing here cannot happen in that state."""


def markdown() -> str:
    """`TABLE` as the table that stands in `docs/design.md`."""
    rows = ["| state | step | becomes | sets off |", "|---|---|---|---|"]
    for state, moves in TABLE.items():
        for step, move in moves.items():
            effects = ", ".join(effect.value for effect in move.effects) or "-"
            rows.append(f"| {state.label} | {step.value} | {move.to.label} | {effects} |")
    return "\n".join(rows)
