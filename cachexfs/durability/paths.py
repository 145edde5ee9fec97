"""Which way to safety: to the peers first, straight to the shared file system, or both. Pure.

The path is the one whose time to safety is least at the configured quantile, for this size under
the present load. Three things temper that:

- *Bytes*: among the paths that are within `MARGIN` of the fastest, the one that puts fewest bytes
  on the network before the file is safe, because those bytes slow the next file and the training.
- *Hysteresis*: a path in use stays until another is faster by `MARGIN`, or puts fewer bytes on the
  network and is within half of it, so that noise does not make it change back and forth. It is kept
  for each class of sizes, since small and large files of one checkpoint may have different answers.
- *Curiosity*: of a way that is not taken nothing is learned, and one that was slow once would be
  thought slow for ever. So now and then a file goes both ways; and where all go both ways, one goes
  one way: whether the two share a link is seen only beside files that went alone. The first files
  of a class, of which nothing is known, take each path in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from cachexfs.durability.composition import COARSE, earlier_quantile, of_copies, then
from cachexfs.durability.forecast import Leg, Model
from cachexfs.durability.latency.curve import Curve

Path = Literal["replica", "direct", "both"]
PATHS: tuple[Path, ...] = ("replica", "direct", "both")

MARGIN = 0.08
"""Relative: two paths closer than this are called equal. Below the 10 % from which a difference
is taken to matter, above the error of a median of some hundred samples."""

TRIED_EVERY = 20
"""One of so many decisions is for what would not be taken: 5 % of them."""

FIRST: tuple[Path, ...] = ("both", "replica", "direct") * 2
"""The first decisions of a class, while the priors have a say in what the paths promise."""


class Offer(msgspec.Struct, frozen=True):
    """What one path promises: time to safety at the quantile, and bytes on the network by then."""

    path: Path
    safe_s: float
    network_bytes: int


class Decision(msgspec.Struct, frozen=True):
    """A path and the numbers that led to it."""

    path: Path
    reason: str
    size_bytes: int
    quantile: float
    offers: tuple[Offer, ...] = ()

    def sentence(self) -> str:
        """For a file's story."""
        numbers = ", ".join(f"{o.path} {o.safe_s:.3g} s" for o in self.offers)
        return f"path {self.path} ({self.reason})" + (f": {numbers}" if numbers else "")


@dataclass(frozen=True, slots=True)
class Traffic:
    """What is under way when a file settles: bytes to each peer, and to the shared file system.

    `unflushed_bytes`, `unsent_bytes`: the same of whole files, whatever part of them has been
    moved. On these waits what has no bytes of its own: it goes behind all that was handed to the
    line, and that is known only when a file is over.
    """

    peers: tuple[tuple[str, int], ...] = ()
    flushing_bytes: int = 0
    unflushed_bytes: int = 0
    unsent_bytes: int = 0

    @property
    def replicating_bytes(self) -> int:
        """Bytes on their way to peers."""
        return sum(count for _, count in self.peers)


@dataclass
class Chooser:
    """Chooses, and remembers for each class of sizes what it chose."""

    quantile: float = 0.95
    copies_wanted: int = 1
    current: dict[int, Path] = field(default_factory=dict)
    decisions: dict[int, int] = field(default_factory=dict)
    """How many there were, by class."""

    def choose(self, model: Model, size_bytes: int, traffic: Traffic) -> Decision:
        """The path of a file that settles now."""
        made = offers(model, size_bytes, traffic, self.copies_wanted, self.quantile)
        kind = size_class(size_bytes)
        path, reason = pick(made, self.current.get(kind))
        self.current[kind] = path
        if len(made) > 1 and (tried := self._tried(kind, path, made, model)) is not None:
            path, reason = tried, "to measure what would not be taken"
        return Decision(path, reason, size_bytes, self.quantile, tuple(made))

    def _tried(self, kind: int, path: Path, made: Sequence[Offer], model: Model) -> Path | None:
        """What is taken out of curiosity; None where it is not its turn."""
        count = self.decisions.get(kind, 0)
        self.decisions[kind] = count + 1
        if count < len(FIRST) and not model.rests_on("replicate", "flush"):
            return FIRST[count]
        if (count + 1) % TRIED_EVERY:
            return None
        alone = min((o for o in made if o.path != "both"), key=lambda offer: offer.safe_s)
        return alone.path if path == "both" else "both"


def pick(made: Sequence[Offer], current: Path | None) -> tuple[Path, str]:
    """The path to take, and why."""
    fastest = min(made, key=lambda offer: offer.safe_s)
    kept = next((offer for offer in _near(made, MARGIN) if offer.path == current), None)
    frugal = _frugal(_near(made, MARGIN if kept is None else MARGIN / 2))
    if kept is not None and frugal.network_bytes >= kept.network_bytes:
        return kept.path, "no other is faster by more than the margin"
    if frugal.path == fastest.path:
        return fastest.path, "safe first"
    return frugal.path, "as fast as any, with fewer bytes on the network"


def _near(made: Sequence[Offer], margin: float) -> list[Offer]:
    """Those that promise about as much as the fastest, itself included."""
    fastest_s = min(offer.safe_s for offer in made)
    return [offer for offer in made if offer.safe_s * (1.0 - margin) <= fastest_s]


def _frugal(made: Sequence[Offer]) -> Offer:
    return min(made, key=lambda offer: (offer.network_bytes, offer.safe_s))


def offers(
    model: Model, size_bytes: int, traffic: Traffic, copies_wanted: int, quantile: float
) -> list[Offer]:
    """What every path promises; without peers there is one path only.

    As earlier ways came true: what misses more at the quantile promises less.
    """
    direct = _durable(model, size_bytes, traffic, beside=0)
    made = [Offer("direct", direct.quantile(quantile), size_bytes)]
    if len(traffic.peers) >= copies_wanted:
        copies = size_bytes * copies_wanted
        replica = _replicated(model, size_bytes, traffic, copies_wanted, beside=0)
        both_s = earlier_quantile(
            _replicated(model, size_bytes, traffic, copies_wanted, beside=size_bytes),
            _durable(model, size_bytes, traffic, beside=copies),
            quantile,
            model.beside(),
        )
        made.append(Offer("replica", replica.quantile(quantile), copies))
        made.append(Offer("both", both_s, copies + size_bytes))
    return sorted(made, key=lambda offer: PATHS.index(offer.path))


def size_class(size_bytes: int) -> int:
    """Sizes within a factor of four are of one class."""
    return max(size_bytes, 1).bit_length() // 2


def _replicated(
    model: Model, size_bytes: int, traffic: Traffic, copies_wanted: int, *, beside: int
) -> Curve:
    curves = [
        model.whole(
            Leg(
                "replicate", size_bytes, source=peer, ahead_bytes=ahead,
                beside_bytes=traffic.flushing_bytes + beside,
            )
        )
        for peer, ahead in traffic.peers
    ]  # fmt: skip
    copies = of_copies(curves, copies_wanted, model.together("replicate"))
    return model.corrected("replicated", copies)


def _durable(model: Model, size_bytes: int, traffic: Traffic, *, beside: int) -> Curve:
    flush = Leg(
        "flush", size_bytes, ahead_bytes=traffic.flushing_bytes,
        beside_bytes=traffic.replicating_bytes + beside,
    )  # fmt: skip
    commit = Leg("commit", size_bytes, ahead_bytes=None)
    return model.corrected("durable", then(model.whole(flush), model.whole(commit), COARSE))
