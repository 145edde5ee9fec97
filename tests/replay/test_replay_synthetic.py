"""The made-up trace: its numbers are those that it promises. Set-ups and estimates, too."""

from __future__ import annotations

from itertools import pairwise
from math import exp
from statistics import fmean, median, pstdev

import pytest

from tools.replay.draws import normal, uniform
from tools.replay.errors import OptionError
from tools.replay.estimates import parse_estimates
from tools.replay.setups import parse_setup
from tools.replay.synthetic import generate
from tools.replay.traces import TraceJob

JOBS = 60_000


def test_arrivals_come_in_bursts_and_durations_have_a_heavy_tail() -> None:
    jobs = list(generate(JOBS, seed=3))
    seconds = [round(job.submit_s) for job in jobs]
    gaps = [b - a for a, b in pairwise(seconds)]
    assert fmean(gaps) == pytest.approx(97, rel=0.25)
    assert 9 < pstdev(gaps) / fmean(gaps) < 25
    assert gaps.count(0) / JOBS == pytest.approx(0.08, abs=0.01)
    durations = [job.duration_s for job in jobs]
    assert median(durations) == pytest.approx(1144, rel=0.15)
    assert fmean(durations) == pytest.approx(13136, rel=0.25)


def test_the_same_seed_makes_the_same_jobs() -> None:
    assert list(generate(500, seed=1)) == list(generate(500, seed=1))
    assert list(generate(500, seed=1)) != list(generate(500, seed=2))


def test_draws_depend_on_seed_and_name_alone() -> None:
    assert uniform(1, "setup", "a") == uniform(1, "setup", "a")
    numbers = [normal(1, "estimate", str(name)) for name in range(4000)]
    assert fmean(numbers) == pytest.approx(0, abs=0.05)
    assert pstdev(numbers) == pytest.approx(1, abs=0.05)


def _job(gpus: int, name: str = "a") -> TraceJob:
    return TraceJob(name, 0, 1000, gpus)


def test_setup_models() -> None:
    assert parse_setup("const:1200", 1).seconds(_job(8)) == 1200
    growing = parse_setup("log2:60:180", 1)
    assert [growing.seconds(_job(gpus)) for gpus in (1, 2, 8)] == [60, 240, 600]
    drawn = parse_setup("lognorm:600:1", 1)
    setups = [drawn.seconds(_job(1, str(name))) for name in range(4000)]
    assert median(setups) == pytest.approx(600, rel=0.06)
    assert fmean(setups) == pytest.approx(600 * exp(0.5), rel=0.1)
    assert drawn.seconds(_job(1, "7")) == setups[7]


def test_estimates() -> None:
    assert parse_estimates("oracle", 1).seconds(_job(1)) == 1000
    noisy = parse_estimates("noise:2", 1)
    guesses = [noisy.seconds(_job(1, str(name))) or 0 for name in range(4000)]
    assert median(guesses) == pytest.approx(1000, rel=0.1)
    assert noisy.seconds(_job(1, "7")) == guesses[7]
    assert parse_estimates("noise:0", 1).seconds(_job(1)) == 1000
    assert parse_estimates("none", 1).seconds(_job(1)) is None
    history = parse_estimates("history", 1)
    assert history.seconds(_job(1)) is None and history.history


@pytest.mark.parametrize(
    "text", ["const", "const:x", "const:-1", "const:inf", "log2:60", "exp:1:2"]
)
def test_a_setup_that_is_none(text: str) -> None:
    with pytest.raises(OptionError, match="--setup"):
        parse_setup(text, 1)


@pytest.mark.parametrize("text", ["", "noise", "noise:", "noise:-1", "noise:inf", "perfect"])
def test_an_estimate_that_is_none(text: str) -> None:
    with pytest.raises(OptionError, match="--estimate"):
        parse_estimates(text, 1)
