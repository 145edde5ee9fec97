"""Keeping score, and what the score of this model is on storage with bursts."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest

from cachexfs.durability.forecast import Leg, Model
from cachexfs.durability.latency.fitting import fit_all
from cachexfs.durability.latency.sample import Sample
from cachexfs.durability.score import LEVELS, Forecast, pinball, score, scores
from tests.unit.durability.truths import DRAWS, MB, Draw, bursts, samples

NORMAL = {0.025: -1.96, 0.05: -1.645, 0.25: -0.6745, 0.5: 0.0}


def lognormal_forecast(median_s: float, spread: float, seen_s: float) -> Forecast:
    z = [NORMAL.get(p, -NORMAL.get(round(1 - p, 3), 0.0)) for p in LEVELS]
    return Forecast("flush", 0.0, tuple(median_s * math.exp(spread * x) for x in z), seen_s)


def test_the_score_of_one_forecast() -> None:
    one = Forecast("flush", 0.0, (1, 2, 3, 4, 5, 6, 7), 5.0)
    made = score([one])
    assert made.mape == pytest.approx(0.2)
    assert made.coverage == {"50": 1.0, "90": 1.0, "95": 1.0}
    losses = [0.1, 0.15, 0.5, 0.5, 0.0, 0.05, 0.05]
    assert pinball(one) == pytest.approx(sum(losses) / 7)


def test_an_honest_forecast_covers_what_it_says_and_loses_least() -> None:
    rng = np.random.default_rng(1)
    seen = np.exp(rng.normal(0, 0.5, 4000))
    made = {
        spread: score([lognormal_forecast(1.0, spread, float(s)) for s in seen])
        for spread in (0.2, 0.5, 1.2)
    }
    assert made[0.5].coverage == pytest.approx({"50": 0.5, "90": 0.9, "95": 0.95}, abs=0.03)
    assert made[0.2].coverage["90"] < 0.6 and made[1.2].coverage["90"] > 0.97
    assert made[0.5].pinball_s < min(made[0.2].pinball_s, made[1.2].pinball_s)


def test_scores_are_by_phase_and_of_late() -> None:
    def at(phase: str, at_s: float) -> Forecast:
        return Forecast(phase, at_s, (1,) * 7, 1.0)

    made = scores([at("flush", 0), at("flush", 10), at("commit", 20)], since_s=5)
    assert [(one.phase, one.forecasts) for one in made] == [("commit", 1), ("flush", 1)]


@functools.cache
def held_out(name: str, seed: int, *, first: int = 200, every: int = 50) -> list[Forecast]:
    """Forecasts of files that come after those that were fitted, with a new fit now and then."""
    everything = samples(truth(name), first + 400, seed)
    made: list[Forecast] = []
    for begin in range(first, len(everything), every):
        model = Model(fit_all(everything[:begin]))
        for sample in everything[begin : begin + every]:
            model.it_is(sample.begin_s)
            curve = model.whole(Leg("flush", sample.size_bytes))
            quantiles = tuple(curve.quantile(p) for p in LEVELS)
            made.append(Forecast("flush", sample.begin_s, quantiles, sample.elapsed_s))
            model.saw(sample)
    return made


BURSTS = {"bursts": (6.0, 0.05, 0.2), "long bursts": (4.0, 0.02, 0.05)}
"""How many times slower, how likely one begins, how likely it ends, with each file."""


def truth(name: str) -> Draw:
    return bursts(*BURSTS[name]) if name in BURSTS else DRAWS[name]


@pytest.mark.parametrize("name", [*DRAWS, *BURSTS])
def test_intervals_cover_what_they_say(name: str) -> None:
    """400 forecasts not used for fitting, of steady storage and of storage with bursts."""
    made = score(held_out(name, seed=34))
    assert made.forecasts >= 300
    assert 0.85 <= made.coverage["90"] <= 0.95, made
    assert 0.40 <= made.coverage["50"] <= 0.62, made


@pytest.mark.parametrize("name", ["lognormal", "bursts", "long bursts"])
def test_the_model_beats_simple_predictors(name: str) -> None:
    """Last value, mean, linear in size, exponential smoothing: mean relative error of each."""
    everything = samples(truth(name), 600, seed=34)
    ours = score(held_out(name, seed=34)).mape
    simple = simple_errors(everything, 200)
    assert ours < min(simple.values()), (ours, simple)


def simple_errors(everything: list[Sample], first: int) -> dict[str, float]:
    """The mean relative error of each simple predictor, one step ahead."""
    errors: dict[str, list[float]] = {"last": [], "mean": [], "linear": [], "ewma": []}
    smoothed = everything[0].elapsed_s
    for i, sample in enumerate(everything):
        if i >= first:
            past = everything[:i]
            sizes, times = [s.size_bytes / MB for s in past], [s.elapsed_s for s in past]
            slope, offset = np.polyfit(sizes, times, 1)
            guesses = {
                "last": times[-1],
                "mean": float(np.mean(times)),
                "linear": float(slope * sample.size_bytes / MB + offset),
                "ewma": smoothed,
            }
            for name, guess in guesses.items():
                errors[name].append(abs(guess - sample.elapsed_s) / sample.elapsed_s)
        smoothed += 0.3 * (sample.elapsed_s - smoothed)
    return {name: float(np.mean(each)) for name, each in errors.items()}
