"""What forecasts had become, each corrected by how those before it came true. Pure; numpy.

    q'(p) = q(p) + share x Q_p(seen - q(p) of the forecasts that had ended when it was made)

Q_p is the quantile at p of the differences, newer ones weighing more. It is 0 at every p for
forecasts that are honest, so their own spread is not added a second time: a median that is too low
moves, and an interval that is too narrow grows at the end where the times fall out. With one-sided
scores this is conformalized quantile regression (Romano, Patterson, Candès 2019), and the same aim
as the recalibration by probability integral transforms of Kuleshov, Fenner and Ermon (2018), which
relies on the tails of a forecast where all that was seen lies beyond them. "ratio" takes quotients
in place of differences: right where what is missing grows with the time.

What was given up has no end and is left out, as in every score.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from cachexfs.durability.score import LEVELS, Score, score
from tools.experiments.predicting.held import Held

By = Literal["difference", "ratio"]
_Numbers = np.typing.NDArray[np.float64]

HALVES_AFTER = 100
"""Forecasts after which an older one weighs half."""

WHOLE_AFTER = 30
"""Past forecasts from which on the correction counts whole; with fewer it fades to none."""

_LEAST = 0.1
"""A quantile keeps at least so much of what it was: times are positive."""


def calibrated(held: Sequence[Held], by: By = "difference") -> list[Held]:
    """The same forecasts, corrected; each target by itself, in the order of time."""
    targets = dict.fromkeys(one.target for one in held)
    return [
        one
        for target in targets
        for one in _of_target([each for each in held if each.target == target], by)
    ]


def _of_target(held: Sequence[Held], by: By) -> list[Held]:
    ended = sorted(held, key=_end_s)
    ends = np.array([_end_s(one) for one in ended])
    misses = np.array([_missed(one, by) for one in ended])
    return [
        _corrected(one, misses[: np.searchsorted(ends, one.at_s, side="right")], by)
        for one in sorted(held, key=lambda one: one.at_s)
    ]


def _end_s(one: Held) -> float:
    return one.at_s + one.seen_s


def _missed(one: Held, by: By) -> _Numbers:
    """By how much each quantile missed what was seen: seconds, or ln of a factor."""
    quantiles = np.array(one.quantiles)
    if by == "ratio":
        return np.log(one.seen_s / quantiles)
    return one.seen_s - quantiles


def _corrected(one: Held, misses: _Numbers, by: By) -> Held:
    """`misses`: of those that had ended, oldest first; a row for each, a column for each level."""
    if not len(misses):
        return one
    shift = np.array([_newest_quantile(misses[:, i], p) for i, p in enumerate(LEVELS)])
    shift *= min(1.0, len(misses) / WHOLE_AFTER)
    before = np.array(one.quantiles)
    after = before * np.exp(shift) if by == "ratio" else before + shift
    ascending = np.maximum.accumulate(np.maximum(after, _LEAST * before))
    return msgspec.structs.replace(one, quantiles=tuple(float(q) for q in ascending))


def _newest_quantile(values: _Numbers, p: float) -> float:
    """Of values from the oldest to the newest, by their weights."""
    weights = 0.5 ** (np.arange(len(values))[::-1] / HALVES_AFTER)
    order = np.argsort(values)
    below = np.cumsum(weights[order]) - weights[order] / 2
    return float(np.interp(p, below / np.sum(weights), values[order]))


def as_table(held: Sequence[Held], targets: Sequence[str]) -> str:
    """Markdown: the forecasts as they were made and with either correction."""
    kinds = dict.fromkeys((one.profile, one.target) for one in held if one.target in targets)
    ways = {
        "as made": list(held),
        "by difference": calibrated(held),
        "by ratio": calibrated(held, "ratio"),
    }
    lines = [
        "| | | | forecasts | MAPE | inside 50 / 90 / 95 % | pinball |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        _row(*kind, way, score([one.forecast() for one in made if _kind(one) == kind]))
        for kind in kinds
        for way, made in ways.items()
    ]
    return "\n".join([*lines, "", *_before_capture(held)])


def _before_capture(held: Sequence[Held]) -> list[str]:
    """What of a write is in no phase: it is opened, and then its capture begins."""
    captures = {_write(one): one.at_s for one in held if one.target == "capture"}
    writes = [one for one in held if one.target == "returned" and _write(one) in captures]
    lines = []
    for profile in dict.fromkeys(one.profile for one in writes):
        kept = [one for one in writes if one.profile == profile]
        opening = np.array([captures[_write(one)] - one.at_s for one in kept])
        missed = np.array([one.seen_s - one.forecast().median_s for one in kept])
        middle, high = 1000 * np.quantile(opening, [0.5, 0.95])
        lines.append(
            f"- {profile}: until its capture begins a write takes {middle:.1f} ms (median; "
            f"{high:.0f} ms at 95 %); it returns {1000 * np.median(missed):.1f} ms after the "
            f"median forecast, {1000 * np.median(missed - opening):.1f} ms without that"
        )
    return lines


def _write(one: Held) -> tuple[str, int, int]:
    return one.profile, one.run, one.number


def _kind(one: Held) -> tuple[str, str]:
    return one.profile, one.target


def _row(profile: str, target: str, way: str, made: Score) -> str:
    inside = " / ".join(f"{100 * made.coverage[level]:.0f}" for level in ("50", "90", "95"))
    return (
        f"| {profile} | {target} | {way} | {made.forecasts} | {100 * made.mape:.1f} % | {inside} | "
        f"{1000 * made.pinball_s:.3g} ms |"
    )
