"""How well forecasts came true: error, coverage, sharpness. Pure.

A forecast is a set of quantiles, made when a phase began; it is held against the time seen.

- MAPE: mean of |median - seen| / seen. Of the median, because that is what an ETA says.
- error: mean of |median - seen| in seconds. What takes some milliseconds at one time and half a
  second at another (a commit, an opening) has a MAPE of some hundred per cent from the short ones,
  of which nobody feels the difference; there the error in seconds is the one to read.
- coverage: the share of times seen that lay inside the central interval of 50, 90 and 95 %; an
  honest model has 50, 90 and 95 %.
- pinball loss (Koenker and Bassett 1978): the mean over the quantiles p of (seen - q)(p - [seen <
  q]); it is least for the true quantiles and so rewards both honesty and sharpness. In seconds, and
  divided by the mean of the times seen, which makes phases comparable.

Only what ended is scored: a phase that was given up has no time to be held against. Leaving those
out flatters the forecasts of the longest a little.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

LEVELS = (0.025, 0.05, 0.25, 0.5, 0.75, 0.95, 0.975)
"""Quantiles of a forecast: the ends of three central intervals, and the median."""

_MEDIAN = LEVELS.index(0.5)
INTERVALS = {50: (0.25, 0.75), 90: (0.05, 0.95), 95: (0.025, 0.975)}
"""Per cent -> the two levels at its ends."""

WEEK_S = 7 * 86400.0


class Forecast(msgspec.Struct, frozen=True):
    """Quantiles at `LEVELS`, forecast at `at_s` for a phase, and the seconds that it took."""

    phase: str
    at_s: float
    quantiles: tuple[float, ...]
    seen_s: float

    @property
    def median_s(self) -> float:
        """The point forecast."""
        return self.quantiles[_MEDIAN]


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """Of one phase. Shares and relative errors between 0 and 1."""

    phase: str
    forecasts: int
    mape: float
    error_s: float
    coverage: dict[str, float]
    pinball_s: float
    pinball_relative: float


def scores(forecasts: Iterable[Forecast], since_s: float = 0.0) -> list[Score]:
    """A score for each phase, of the forecasts made since then."""
    by_phase: dict[str, list[Forecast]] = {}
    for forecast in forecasts:
        if forecast.at_s >= since_s:
            by_phase.setdefault(forecast.phase, []).append(forecast)
    return [score(by_phase[phase]) for phase in sorted(by_phase)]


def score(forecasts: Sequence[Forecast]) -> Score:
    """The score of forecasts of one phase. One or more."""
    count = len(forecasts)
    seen = [max(forecast.seen_s, 1e-9) for forecast in forecasts]
    errors = [abs(f.median_s - s) / s for f, s in zip(forecasts, seen, strict=True)]
    loss = sum(pinball(forecast) for forecast in forecasts) / count
    return Score(
        phase=forecasts[0].phase,
        forecasts=count,
        mape=sum(errors) / count,
        error_s=sum(abs(f.median_s - f.seen_s) for f in forecasts) / count,
        coverage={
            str(percent): sum(_is_inside(f, *ends) for f in forecasts) / count
            for percent, ends in INTERVALS.items()
        },
        pinball_s=loss,
        pinball_relative=loss / (sum(seen) / count),
    )


def pinball(forecast: Forecast) -> float:
    """The mean loss over the levels, in seconds."""
    losses = [
        (forecast.seen_s - q) * (p - (forecast.seen_s < q))
        for p, q in zip(LEVELS, forecast.quantiles, strict=True)
    ]
    return sum(losses) / len(losses)


def _is_inside(forecast: Forecast, low: float, high: float) -> bool:
    ends = (forecast.quantiles[LEVELS.index(low)], forecast.quantiles[LEVELS.index(high)])
    return ends[0] <= forecast.seen_s <= ends[1]
