"""The forecast as numbers: these names are the keys of `cachexfs forecast --json`.

Times are in seconds from now unless they end in `at_s` (since the epoch). None: not known, or not
on its way there.
"""

from __future__ import annotations

import msgspec

from cachexfs.durability.latency.curve import Curve
from cachexfs.durability.lost_work import Interval, Loss
from cachexfs.durability.paths import Decision, Offer
from cachexfs.durability.score import Score

SCHEMA = 1

HORIZONS_S = (1.0, 10.0, 60.0, 600.0)
"""At which P(safe by then) is given."""


class When(msgspec.Struct, frozen=True):
    """Quantiles of a time."""

    median_s: float
    q95_s: float


class PhaseSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One fit. `slower_by`: today's level as a factor; `since_at_s`: the regime's begin, or 0."""

    phase: str
    source: str
    family: str
    samples: int
    censored: int
    slower_by: float
    together: float
    since_at_s: float
    typical_size_bytes: int
    time: When
    bic: dict[str, float]


class WriteSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a program opens now, writes and closes, or waits for: from its open.

    `corrected`: whether enough earlier forecasts of such files came true to learn from them.
    """

    size_bytes: int
    replicated: When | None
    durable: When | None
    safe: When | None
    corrected: bool


class PendingSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A file, or a checkpoint, that is not durable yet."""

    path: str
    state: str
    size_bytes: int
    files: int = 1
    replicated: When | None
    durable: When | None
    safe: When | None
    safe_by: dict[str, float]


class LostWork(msgspec.Struct, frozen=True, kw_only=True):
    """What a node's death costs: at once, and at a random moment under each path."""

    now_s: float | None
    interval_s: float | None
    save_s: float | None
    checkpoint_bytes: int
    at_random: dict[str, Loss]


class Intervals(msgspec.Struct, frozen=True, kw_only=True):
    """How often to save."""

    mtbf_s: float
    origin: str
    nodes: int
    restart_s: float
    path: str
    rules: list[Interval]


class Recommended(msgspec.Struct, frozen=True, kw_only=True):
    """The path that `auto` would take for a typical file on idle links."""

    configured: str
    path: str
    reason: str
    size_bytes: int
    quantile: float
    offers: list[Offer]
    recent: list[Decision]


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Everything."""

    mountpoint: str
    at_s: float
    fitted_at_s: float
    phases: list[PhaseSummary]
    write: WriteSummary
    pending: list[PendingSummary]
    checkpoint: PendingSummary | None
    lost_work: LostWork
    intervals: Intervals | None
    recommended: Recommended
    score: list[Score]
    notes: list[str]
    schema: int = SCHEMA


def when(curve: Curve | None) -> When | None:
    """The quantiles that are shown."""
    return None if curve is None else When(curve.median(), curve.quantile(0.95))


def safe_by(curve: Curve | None) -> dict[str, float]:
    """P(safe by t) at the horizons."""
    if curve is None:
        return {}
    return {f"{horizon:g}": round(curve.cdf(horizon), 4) for horizon in HORIZONS_S}
