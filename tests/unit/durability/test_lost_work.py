"""Lost work: the forecast against deaths replayed over a measured run; how often to save."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cachexfs.durability.checkpoints import Saved, checkpoints, usual_interval_s
from cachexfs.durability.composition import earlier, then
from cachexfs.durability.latency.curve import Curve, lognormal, step
from cachexfs.durability.latency.families import Array
from cachexfs.durability.latency.fit import PhaseFit
from cachexfs.durability.latency.fitting import fit_phase
from cachexfs.durability.latency.sample import Sample
from cachexfs.durability.lost_work import (
    NODE_MTBF_S,
    Lifetime,
    Loss,
    Saving,
    best_interval,
    daly,
    failure_rate,
    intervals,
    lost_work,
    simulated_deaths,
    uniforms,
    waste,
    young,
)
from tests.unit.durability.truths import DRAWS, FIXED, MB

SIZE = 2000 * MB
INTERVAL_S = 60.0
SAVE_S = 2.0
DEATHS = 500


def run(count: int, seed: int) -> dict[str, Array]:
    """The lags of a run of saves: what each path took, bursts and all."""
    rng = np.random.default_rng(seed)
    peer = np.array([0.5 * DRAWS["lognormal"](rng) for _ in range(count)]) * (FIXED + SIZE)
    storage = np.array([DRAWS["mixture"](rng) for _ in range(count)]) * (FIXED + SIZE)
    commit = 0.1 * np.exp(rng.normal(0, 0.3, count))
    direct = storage + commit
    return {
        "replica": peer, "direct": direct, "both": np.minimum(peer, direct),
        "flush": storage, "commit": commit,
    }  # fmt: skip


def fitted(phase: str, times: Array) -> Curve:
    made = [
        Sample(phase=phase, size_bytes=SIZE, begin_s=i * INTERVAL_S, elapsed_s=float(t))
        for i, t in enumerate(times)
    ]
    fit: PhaseFit = fit_phase(made)
    return fit.unit().scaled(fit.work.bytes_of(made[0].moved_bytes))


def replayed(lags: Array, seed: int) -> Array:
    """What was really lost in deaths at random moments of a run."""
    rng = np.random.default_rng(seed)
    begins = np.arange(len(lags)) * INTERVAL_S
    safe_at = begins + SAVE_S + lags
    dies = rng.uniform(20 * INTERVAL_S, len(lags) * INTERVAL_S, DEATHS)
    return np.array([t - begins[safe_at <= t].max() for t in dies])


@pytest.fixture(scope="module")
def forecast() -> dict[str, Curve]:
    """Time to safety of each path, from the measurements of a run that comes before."""
    seen = run(400, seed=1)
    replica = fitted("replicate", seen["replica"])
    direct = then(fitted("flush", seen["flush"]), fitted("commit", seen["commit"]))
    return {"replica": replica, "direct": direct, "both": earlier(replica, direct)}


@pytest.mark.parametrize("path", ["replica", "direct", "both"])
def test_what_is_really_lost_is_what_was_forecast(path: str, forecast: dict[str, Curve]) -> None:
    """The mean of 500 deaths within the 95 % interval of the forecast, on a later run."""
    loss = lost_work(Saving(INTERVAL_S, SAVE_S, forecast[path]))
    lost = replayed(run(600, seed=2)[path], seed=3)
    low, high = loss.interval_of_mean(DEATHS)
    assert low <= lost.mean() <= high
    assert np.mean(lost <= loss.q95_s) == pytest.approx(0.95, abs=0.025)


def test_the_paths_lose_in_their_order(forecast: dict[str, Curve]) -> None:
    means = {
        path: lost_work(Saving(INTERVAL_S, SAVE_S, lag)).mean_s for path, lag in forecast.items()
    }
    assert means["both"] <= means["replica"] < means["direct"]


def test_without_any_lag_half_an_interval_is_lost() -> None:
    loss = lost_work(Saving(100.0, 0.0, step(1e-6)))
    assert loss.mean_s == pytest.approx(50, rel=0.01)
    assert loss.deviation_s == pytest.approx(100 / math.sqrt(12), rel=0.02)
    assert loss.q95_s == pytest.approx(95, rel=0.02)


@pytest.mark.parametrize("lag_s", [10.0, 70.0, 250.0])
def test_a_lag_counts_in_full(lag_s: float) -> None:
    loss = lost_work(Saving(100.0, 5.0, step(lag_s)))
    assert loss.mean_s == pytest.approx(50 + 5 + lag_s, abs=2)


def test_formula_and_simulation_agree_where_nothing_queues() -> None:
    saving = Saving(100.0, 5.0, lognormal(10.0, 0.8))
    loss, lost = lost_work(saving), simulated_deaths(saving, 2000)
    low, high = loss.interval_of_mean(2000, z=3)
    assert low <= sum(lost) / len(lost) <= high


def test_saves_that_come_too_fast_queue() -> None:
    lag = lognormal(30.0, 0.3)
    relaxed, hurried = (
        sum(simulated_deaths(Saving(interval, 0.1, lag), 200)) / 200 for interval in (40.0, 25.0)
    )
    assert hurried > relaxed


# --- how often ------------------------------------------------------------------------------------


def test_young_and_daly() -> None:
    """Daly 2006: for small saves his interval is Young's; it is longer where they are not small."""
    assert young(2.0, 10_000.0) == pytest.approx(200.0)
    assert daly(2.0, 10_000.0) == pytest.approx(200.0 * (1 + 0.01 / 3 + 1e-4 / 9))
    assert daly(1.0, 1e7) == pytest.approx(young(1.0, 1e7), rel=1e-3)
    assert daly(500.0, 200.0) == 700.0


def test_the_three_agree_where_the_first_order_holds() -> None:
    made = {i.rule: i for i in intervals(2.0, step(0.5), 20_000.0, 60.0, deaths=300)}
    assert made["simulated"].interval_s == pytest.approx(made["young"].interval_s, rel=0.6)
    assert made["simulated"].wasted <= min(made["young"].wasted, made["daly"].wasted) + 0.001


def test_a_path_that_carries_no_more_makes_the_interval_longer() -> None:
    """Saving each 63 s, as Young would have it, is more than a path of 200 s a save can carry."""
    best = best_interval(0.1, lognormal(200.0, 0.2), 20_000.0, 60.0)
    assert young(0.1, 20_000.0) < 70
    assert best.interval_s > 120


def test_waste_counts_saving_loss_and_restart() -> None:
    assert waste(Saving(100.0, 5.0, step(1.0)), 1000.0, 10.0, 40.0) == pytest.approx(0.05 + 0.05)


# --- how often nodes fail -------------------------------------------------------------------------


def test_the_rate_of_failures() -> None:
    day = 86400.0
    assert failure_rate(30 * day, [], nodes=10).mtbf_s == 3 * day
    assert failure_rate(None, []).mtbf_s == NODE_MTBF_S
    seen = [Lifetime(i * 20 * day, (i + 1) * 20 * day, True) for i in range(50)]
    learned = failure_rate(None, seen)
    assert learned.mtbf_s == pytest.approx(1150 / 51 * day)
    assert learned.origin.startswith("50 failures in 1000.0 days")


def test_an_interval_of_the_mean_narrows() -> None:
    loss = Loss(100.0, 20.0, 140.0)
    assert loss.interval_of_mean(100) == pytest.approx((96.08, 103.92))


def test_drawn_numbers_are_uniform_and_repeat() -> None:
    draw, again = uniforms(7), uniforms(7)
    numbers = [draw() for _ in range(20_000)]
    assert numbers[:50] == [again() for _ in range(50)]
    assert np.histogram(numbers, 10, (0, 1))[0] == pytest.approx([2000] * 10, rel=0.08)
    assert abs(float(np.corrcoef(numbers[1:], numbers[:-1])[0, 1])) < 0.02
    assert all(0 < number < 1 for number in numbers)


# --- what is one checkpoint -----------------------------------------------------------------------


def file(begin_s: float, safe_s: float | None = None, job: str = "a") -> Saved:
    return Saved(job, begin_s, begin_s + 1.0, MB, safe_s)


def test_files_close_together_are_one_checkpoint() -> None:
    made = checkpoints([file(0, 5), file(1, 7), file(2.5, 6), file(60, 65), file(61)])
    assert [(one.files, one.begin_s, one.settled_s, one.safe_s) for one in made] == [
        (3, 0, 3.5, 7),
        (2, 60, 62, None),
    ]
    assert made[0].save_s == 3.5 and made[0].size_bytes == 3 * MB
    assert usual_interval_s(made) == 60


def test_a_job_that_saves_often_is_not_one_long_save() -> None:
    made = checkpoints(
        [
            Saved("a", 2.0 * i + 0.1 * k, 2.0 * i + 0.1 * k + 0.1, MB)
            for i in range(9)
            for k in (0, 1)
        ]
    )
    assert [one.files for one in made] == [2] * 9
    assert usual_interval_s(made) == pytest.approx(2)


def test_one_save_alone_is_one_checkpoint() -> None:
    assert [one.files for one in checkpoints([file(0), file(1.5), file(3)])] == [3]
    assert [one.files for one in checkpoints([file(0)])] == [1]
    assert checkpoints([]) == []


def test_jobs_have_checkpoints_of_their_own() -> None:
    made = checkpoints([file(0, 1), file(1, 2, "b"), file(30, 31), file(31, 32, "b")])
    assert [one.job for one in made] == ["a", "b", "a", "b"]
    assert usual_interval_s(made) == 30
    assert usual_interval_s([]) is None and usual_interval_s(made[:1]) is None
