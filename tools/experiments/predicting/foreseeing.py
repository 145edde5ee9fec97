"""What is forecast of a write that begins now, from what the daemon knows at this moment. Pure."""

from __future__ import annotations

from cachexfs.control.foresight import Knowledge
from cachexfs.durability.composition import then
from cachexfs.durability.forecast import Leg, Model, Way
from cachexfs.durability.latency.curve import Curve
from cachexfs.durability.score import LEVELS

TARGETS = ("returned", "replicated", "durable")
"""Seconds from the begin of a write. `returned`: its fsync did, at the level `replicated`, which
what is durable has reached too; so it is the earlier of the other two."""

Quantiles = tuple[float, ...]
"""At `score.LEVELS`."""


def foresee(known: Knowledge, size_bytes: int) -> dict[str, Quantiles]:
    """The quantiles of every target of a file of this size."""
    model = Model(known.fits)
    capture = model.whole(Leg("capture", size_bytes))
    outlook = model.outlook(way_of(known, size_bytes))
    curves = {
        "returned": outlook.safe, "replicated": outlook.replicated, "durable": outlook.durable
    }  # fmt: skip
    return {
        target: _quantiles(then(capture, curve))
        for target, curve in curves.items()
        if curve is not None
    }


def way_of(known: Knowledge, size_bytes: int) -> Way:
    """Replication and flush side by side, behind what is under way already."""
    traffic = known.traffic
    replicas = tuple(
        Leg(
            "replicate", size_bytes, ahead_bytes=ahead,
            beside_bytes=traffic.flushing_bytes + size_bytes, source=peer,
        )
        for peer, ahead in traffic.peers
    )  # fmt: skip
    flush = Leg(
        "flush", size_bytes, ahead_bytes=traffic.flushing_bytes,
        beside_bytes=traffic.replicating_bytes + size_bytes * bool(replicas),
    )  # fmt: skip
    return Way(known.copies_wanted, replicas, flush, Leg("commit", size_bytes))


def _quantiles(curve: Curve) -> Quantiles:
    return tuple(curve.quantile(p) for p in LEVELS)
