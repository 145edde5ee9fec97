"""A whole write, from the moment a program opens a file for it: when will it be safe? Pure.

    opening ── capture ──┬─ replicated ─┐
    ahead of it ─────────┤              ├─ the earlier: safe, and an fsync at `replicated` returns
                         └─ durable ────┘

What is ahead on the line goes on moving while the program opens and writes, so a way begins when
both are over: the later of (opening, capture, a way with nothing ahead) and (a way that begins at
once, behind what is ahead). The opening and the capture are summed; what ties them to the rest (all
are slow when this node is) is left to the correction of the whole.
"""

from __future__ import annotations

from dataclasses import replace

from cachexfs.durability.composition import COARSE, then
from cachexfs.durability.forecast import Leg, Model, Outlook, Way
from cachexfs.durability.paths import Path, Traffic

JOURNEYS = ("replicated", "durable", "safe")
"""What a way leads to, from settling."""

_STRETCHES = {
    "replicated": ("replicate",), "durable": ("flush", "commit"), "safe": ("flush", "commit")
}  # fmt: skip
"""What has to be fitted for a forecast to rest on it; there may be no peers to be safe with."""

WRITES = {to: f"write {to}" for to in JOURNEYS}
"""The same from the opening: the kinds under which these are measured, scored and corrected."""


def is_known(model: Model, journey: str) -> bool:
    """Whether a forecast of this kind rests on measurements alone.

    What those miss in which the priors have a say, later ones do not: nothing is learned from them.
    """
    to = journey.removeprefix("write ")
    begin = () if to == journey else ("opening", "capture")
    return model.rests_on(*begin, *_STRETCHES[to])


def way_of(size_bytes: int, traffic: Traffic, copies_wanted: int, path: Path = "both") -> Way:
    """The way of a file that begins it now, behind what is under way already."""
    peers = () if path == "direct" else traffic.peers
    waits = path == "replica" and bool(peers)
    beside = size_bytes * (not waits)
    replicas = tuple(
        Leg(
            "replicate", size_bytes, ahead_bytes=ahead,
            beside_bytes=traffic.flushing_bytes + beside, source=peer,
        )
        for peer, ahead in peers
    )  # fmt: skip
    flush = Leg(
        "flush", size_bytes, ahead_bytes=traffic.flushing_bytes,
        beside_bytes=traffic.replicating_bytes + beside * bool(replicas),
    )  # fmt: skip
    commit = Leg("commit", size_bytes, ahead_bytes=None)
    return Way(copies_wanted, replicas, flush, commit, waits)


def opening_of(traffic: Traffic) -> Leg:
    """An opening that begins now."""
    return Leg(
        "opening", 0, ahead_bytes=traffic.unflushed_bytes, beside_bytes=traffic.unsent_bytes
    )  # fmt: skip


def composed(
    model: Model, size_bytes: int, traffic: Traffic, copies_wanted: int, path: Path = "both"
) -> Outlook:
    """All three times of a write that begins now, as the phases have it."""
    opening = model.whole(opening_of(traffic))
    until = then(opening, model.whole(Leg("capture", size_bytes)), COARSE)
    return model.composed(way_of(size_bytes, traffic, copies_wanted, path), until)


def foreseen(
    model: Model, size_bytes: int, traffic: Traffic, copies_wanted: int, path: Path = "both"
) -> Outlook:
    """The same, as earlier forecasts of writes came true."""
    return corrected(model, composed(model, size_bytes, traffic, copies_wanted, path))


def corrected(model: Model, made: Outlook) -> Outlook:
    """What was composed, as earlier forecasts of writes came true."""
    curves = {
        to: model.corrected(kind, curve)
        for to, kind in WRITES.items()
        if (curve := getattr(made, to)) is not None
    }
    return replace(made, **curves)
