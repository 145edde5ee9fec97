"""Forecasts held against what was seen, beside the rivals' and the machine's own noise. Pure.

The noise: the same writes at the same moments, twice. `floor` is the mean of |one - other| / other;
who knew the first run by heart would forecast the second with that error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import mean

import msgspec

from cachexfs.durability.score import Forecast, Score, score
from tools.experiments.predicting.rivals import RIVALS

PUBLISHED = 0.071
"""MAPE of the completion time of ordinary writes, as published."""

COVERED = (0.85, 0.95)
"""Between these lies the share that an honest 90 % interval covers."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """One forecast. `run`: a profile is run twice; `number`: of the write in its run.

    `composed`: of a whole write, what `quantiles` were before the daemon's correction.
    """

    profile: str
    run: int
    number: int
    target: str
    size_bytes: int
    at_s: float
    quantiles: tuple[float, ...]
    seen_s: float
    rivals: dict[str, float]
    composed: tuple[float, ...] = ()

    def forecast(self) -> Forecast:
        """As it is scored."""
        return Forecast(self.target, self.at_s, self.quantiles, self.seen_s)

    def as_composed(self) -> Forecast:
        """As it would be scored without the correction."""
        return Forecast(self.target, self.at_s, self.composed or self.quantiles, self.seen_s)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Of one target under one profile; `rivals`: the MAPE of each.

    `composed`: without the daemon's correction of whole writes.
    """

    profile: str
    target: str
    score: Score
    composed: Score
    rivals: dict[str, float]
    floor: float | None

    @property
    def is_best(self) -> bool:
        """Whether no rival is better."""
        return self.score.mape < min(self.rivals.values(), default=float("inf"))

    @property
    def is_honest(self) -> bool:
        """Whether its 90 % interval covers what it says."""
        return COVERED[0] <= self.score.coverage["90"] <= COVERED[1]


def rows(held: Sequence[Held]) -> list[Row]:
    """A row for every target under every profile, in the order in which they come."""
    kinds = dict.fromkeys((one.profile, one.target) for one in held)
    return [
        _row([one for one in held if (one.profile, one.target) == kind and one.rivals])
        for kind in kinds
    ]


def _row(held: Sequence[Held]) -> Row:
    return Row(
        profile=held[0].profile,
        target=held[0].target,
        score=score([one.forecast() for one in held]),
        composed=score([one.as_composed() for one in held]),
        rivals={
            rival: mean(abs(one.rivals[rival] - one.seen_s) / one.seen_s for one in held)
            for rival in RIVALS
        },
        floor=floor(held),
    )


def floor(held: Iterable[Held]) -> float | None:
    """The mean relative difference of two runs of the same; None where there is no second one."""
    seen: dict[int, dict[int, float]] = {}
    for one in held:
        seen.setdefault(one.number, {})[one.run] = one.seen_s
    pairs = [(runs[0], runs[1]) for runs in seen.values() if len(runs) == 2]
    return mean(abs(a - b) / b for a, b in pairs) if pairs else None


def as_table(made: Sequence[Row]) -> str:
    """Markdown."""
    lines = [
        "| | | forecasts | error | MAPE | " + " | ".join(RIVALS) + " | two runs differ by "
        "| inside 50 / 90 / 95 % | pinball | not corrected: inside, pinball |",
        "|---|---|---|---|---|" + "---|" * len(RIVALS) + "---|---|---|---|",
    ]
    for row in made:
        composed = "-"
        if row.composed != row.score:
            composed = f"{_inside(row.composed)}, {1000 * row.composed.pinball_s:.3g} ms"
        rivals = " | ".join(_percent(row.rivals[rival]) for rival in RIVALS)
        noise = "-" if row.floor is None else _percent(row.floor)
        lines.append(
            f"| {row.profile} | {row.target} | {row.score.forecasts} | "
            f"{1000 * row.score.error_s:.3g} ms | "
            f"**{_percent(row.score.mape)}** | {rivals} | {noise} | "
            f"{_inside(row.score)} | {1000 * row.score.pinball_s:.3g} ms | {composed} |"
        )
    return "\n".join([*lines, "", *claims(made)])


def claims(made: Sequence[Row]) -> list[str]:
    """What is claimed of ordinary writes, as they return to their writer, and whether it held."""
    said = []
    for row in (row for row in made if row.target == "returned"):
        what = f"{row.profile}: {_percent(row.score.mape)} of {row.score.forecasts} writes"
        wanted = [
            (row.score.mape <= PUBLISHED, f"at most {_percent(PUBLISHED)}"),
            (row.is_best, "better than every simple predictor"),
            (row.is_honest, "the 90 % interval covers 85 to 95 %"),
        ]
        said.append(f"- {what}; " + "; ".join(f"{text}: {_held(held)}" for held, text in wanted))
    return said


def _inside(made: Score) -> str:
    return " / ".join(f"{100 * made.coverage[level]:.0f}" for level in ("50", "90", "95"))


def _held(held: bool) -> str:
    return "held" if held else "**not held**"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
