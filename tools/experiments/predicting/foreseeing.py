"""What is forecast of a write that begins now, from what the daemon knows at this moment. Pure."""

from __future__ import annotations

from typing import NamedTuple

from cachexfs.control.foresight import Knowledge
from cachexfs.durability.forecast import Outlook
from cachexfs.durability.latency.curve import Curve
from cachexfs.durability.score import LEVELS
from cachexfs.durability.writing import composed, corrected

TARGETS = ("returned", "replicated", "durable")
"""Seconds from the begin of a write. `returned`: its fsync did, at the level `replicated`, which
what is durable has reached too; so it is the earlier of the other two."""

Quantiles = tuple[float, ...]
"""At `score.LEVELS`."""


class Foreseen(NamedTuple):
    """What the mount would tell of a write, and the same before its correction."""

    quantiles: Quantiles
    composed: Quantiles


def foresee(known: Knowledge, size_bytes: int) -> dict[str, Foreseen]:
    """The forecast of every target of a file of this size, both ways, as the mount makes it."""
    model = known.model()
    model.it_is(known.now_s)
    made = composed(model, size_bytes, known.traffic, known.copies_wanted)
    before, after = targets(made), targets(corrected(model, made))
    return {
        target: Foreseen(_quantiles(after[target]), _quantiles(curve))
        for target, curve in before.items()
    }


def targets(made: Outlook) -> dict[str, Curve]:
    """By what is waited for; without those that it is not on its way to."""
    curves = {"returned": made.safe, "replicated": made.replicated, "durable": made.durable}
    return {target: curve for target, curve in curves.items() if curve is not None}


def _quantiles(curve: Curve) -> Quantiles:
    return tuple(curve.quantile(p) for p in LEVELS)
