"""A fitted phase as it is handed over and kept: numbers only, evaluated without numpy."""

from __future__ import annotations

import math

import msgspec

from cachexfs.durability.latency.curve import Curve, from_quantiles, grid
from cachexfs.durability.latency.sample import Work
from cachexfs.durability.latency.spells import Spells
from cachexfs.durability.latency.surprise import Surprise

CLIP = 2.5
"""One sample moves the level as if it were off by a factor of e**2.5 (12) at most: a stall of
minutes says that something happened, not that everything takes minutes now."""


class PhaseFit(msgspec.Struct, frozen=True, kw_only=True):
    """The time of a phase is `work.bytes_of(size, load)` x e**level x a random time per byte.

    `unit_times` are the quantiles of that time per byte at the probabilities of `curve.grid()`.
    `gain`: how far the level follows each new sample; `level`: where it stood at the last sample
    that was fitted. `together`: correlation of files under way at the same time. `samples` counts
    all, `censored` those of them that were not seen to end, `weight` what they count for after
    weighing by recency, `since_s` when the present regime began (0: no change was found). `bic`:
    family -> information criterion, less is better. `spells`: where the family is "spells", a
    mixture whose two states last; `unit_times` are then those of the two as often as they come.
    `surprise`: what came since, and was not forecast. `later`: by which factors, equally likely,
    files that came later made the work more. `beside`: of a flush, the correlation with the
    replication of the same file. `usual_load`: the work that load added, in bytes, equally likely:
    for a phase of which it is not known yet under which load it will begin.
    """

    phase: str
    family: str
    parameters: tuple[float, ...]
    work: Work
    unit_times: tuple[float, ...]
    source: str = ""
    gain: float = 0.0
    level: float = 0.0
    together: float = 0.0
    samples: int = 0
    censored: int = 0
    weight: float = 0.0
    since_s: float = 0.0
    bic: dict[str, float] = {}
    spells: Spells | None = None
    surprise: Surprise = Surprise()
    later: tuple[float, ...] = (1.0,)
    beside: float = 0.0
    usual_load: tuple[float, ...] = (0.0,)

    def unit(self) -> Curve:
        """The random time per byte of work, in seconds."""
        times = dict(zip(grid(len(self.unit_times)), self.unit_times, strict=True))
        return from_quantiles(times.__getitem__, sorted(times))


def followed(level: float, gain: float, log_ratio: float, *, censored: bool = False) -> float:
    """The level after a sample. `log_ratio`: ln of the time seen over the one expected at level 0.

    Simple exponential smoothing of the logarithm (Brown 1956), clipped. A censored sample can only
    say that it takes longer than thought.
    """
    surprise = log_ratio - level
    if censored and surprise <= 0:
        return level
    return level + gain * min(max(surprise, -CLIP), CLIP)


def log_ratio(elapsed_s: float, work_bytes: float, unit_median_s: float) -> float:
    """ln(time seen / time expected at level 0)."""
    return math.log(max(elapsed_s, 1e-9)) - math.log(work_bytes * unit_median_s)
