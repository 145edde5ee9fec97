"""From samples to a fit: the work, the shape, the present regime, the level, the prior."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest

from cachexfs.durability.forecast import Leg, Model
from cachexfs.durability.latency import drift
from cachexfs.durability.latency.fit import PhaseFit, followed
from cachexfs.durability.latency.fitting import fit_all, fit_phase
from cachexfs.durability.latency.prior import PRIORS, prior_fit
from cachexfs.durability.latency.sample import MEASURED_PHASES, Sample, Work
from cachexfs.durability.states import PHASES
from tests.unit.durability.truths import DRAWS, FIXED, MB, samples


@pytest.mark.parametrize("name", DRAWS)
def test_shape_and_work_are_found_together(name: str) -> None:
    fit = fit_phase(samples(DRAWS[name], 600, seed=3))
    assert fit.family == name
    assert fit.gain == 0.0
    assert fit.work.fixed_bytes == pytest.approx(FIXED, rel=0.3)
    drawn = np.sort([DRAWS[name](rng) for rng in [np.random.default_rng(5)] for _ in range(20_000)])
    for p in (0.05, 0.25, 0.5, 0.75, 0.95):
        for size in (MB, 500 * MB):
            seen = fit.unit().quantile(p) * fit.work.bytes_of(size)
            assert seen == pytest.approx((FIXED + size) * float(np.quantile(drawn, p)), rel=0.2)


def test_what_is_still_running_is_not_left_out() -> None:
    """Half of the large files are given up after 1.1 s; the fit still knows what they take."""
    everything = samples(DRAWS["lognormal"], 500, seed=4, limit_s=1.1)
    fit = fit_phase(everything)
    assert fit.censored > 50
    assert fit.unit().median() * fit.work.bytes_of(500 * MB) == pytest.approx(1.04, rel=0.1)


def test_many_that_wait_behind_one_are_one_piece_of_evidence() -> None:
    """One flush ended at once, and a thousand small files wait for 5 to 12 s in its order."""
    waiting = [
        Sample(
            phase="flush", size_bytes=4096, begin_s=0.01 * i, elapsed_s=12 - 0.007 * i,
            censored=i > 0,
        )
        for i in range(1000)
    ]  # fmt: skip
    fit = fit_phase([msgspec.structs.replace(waiting[0], elapsed_s=0.02), *waiting[1:]])
    left_s = Model([fit]).left_at(Leg("flush", 4096, 12.0), 0.5)
    assert 2 < left_s < 120


def test_bytes_ahead_and_beside_are_found() -> None:
    rng = np.random.default_rng(5)
    made = []
    for i in range(400):
        ahead, beside = (int(rng.choice([0, 200, 800])) * MB for _ in range(2))
        work = Work(FIXED, 0.8, 0.4).bytes_of(100 * MB, ahead, beside)
        made.append(
            Sample(
                phase="replicate", size_bytes=100 * MB, begin_s=10.0 * i,
                elapsed_s=work * DRAWS["lognormal"](rng), ahead_bytes=ahead, beside_bytes=beside,
            )
        )  # fmt: skip
    fit = fit_phase(made)
    scale = (fit.work.fixed_bytes + 100 * MB) / (FIXED + 100 * MB)  # one size: only ratios are told
    assert fit.work.ahead_share / scale == pytest.approx(0.8, rel=0.25)
    assert fit.work.beside_share / scale == pytest.approx(0.4, rel=0.25)


def test_what_came_later_explains_and_is_not_forecast() -> None:
    """One file in three shares with another that comes after it; that is no mode of the storage."""
    rng, made = np.random.default_rng(6), []
    for i in range(300):
        behind = 100 * MB * (i % 3 == 0)
        took = (FIXED + 100 * MB + behind) * 2e-9 * math.exp(rng.normal(0.0, 0.05))
        made.append(
            Sample(
                phase="flush", size_bytes=100 * MB, begin_s=10.0 * i, elapsed_s=took,
                behind_bytes=behind,
            )
        )  # fmt: skip
    fit = fit_phase(made)
    assert fit.family != "mixture" and fit.work.behind_share > 0.5
    curve = Model([fit]).whole(Leg("flush", 100 * MB))
    assert curve.median() == pytest.approx((FIXED + 100 * MB) * 2e-9, rel=0.05)
    assert curve.quantile(0.95) > 1.6 * curve.median()  # another may come behind this one too


# --- drift ----------------------------------------------------------------------------------------


def test_a_change_of_regime_is_found_and_its_past_forgotten() -> None:
    fast, slow = samples(DRAWS["lognormal"], 300, seed=6), samples(DRAWS["lognormal"], 40, seed=7)
    later = [
        msgspec.structs.replace(s, begin_s=s.begin_s + 3000, elapsed_s=4 * s.elapsed_s)
        for s in slow
    ]
    fit = fit_phase(fast + later)
    assert abs(fit.since_s - 3000) <= 50
    now = fit.unit().median() * math.exp(fit.level) * fit.work.bytes_of(500 * MB)
    assert now == pytest.approx(4 * (FIXED + 500 * MB) * 2e-9, rel=0.25)


@pytest.mark.parametrize("name", DRAWS)
def test_no_change_is_found_where_there_is_none(name: str) -> None:
    rng = np.random.default_rng(8)
    series = [np.log([DRAWS[name](rng) for _ in range(300)]) for _ in range(60)]
    assert sum(drift.regime_begin(one) > 0 for one in series) <= 1


def test_the_latest_of_two_changes_counts() -> None:
    rng = np.random.default_rng(9)
    series = np.concatenate([rng.normal(c, 0.3, 60) for c in (0.0, 1.5, 0.3)])
    assert abs(drift.regime_begin(series) - 120) <= 3


def test_recent_samples_weigh_more() -> None:
    weights, begin = drift.weights(np.random.default_rng(10).normal(0, 1, 900))
    assert begin == 0
    assert weights[-1] == 1.0
    assert weights[-1 - int(drift.HALF_LIFE)] == pytest.approx(0.5)


# --- the level ------------------------------------------------------------------------------------


def test_a_level_that_wanders_is_followed() -> None:
    rng = np.random.default_rng(11)
    level = np.cumsum(rng.normal(0, 0.15, 400))
    made = [
        Sample(
            phase="flush", size_bytes=100 * MB, begin_s=100.0 * i,
            elapsed_s=(FIXED + 100 * MB) * 2e-9 * math.exp(level[i] + rng.normal(0, 0.1)),
        )
        for i in range(400)
    ]  # fmt: skip
    fit = fit_phase(made)
    assert fit.gain >= 0.3
    now = fit.unit().median() * math.exp(fit.level) * fit.work.bytes_of(100 * MB)
    assert now == pytest.approx((FIXED + 100 * MB) * 2e-9 * math.exp(level[-1]), rel=0.3)


def test_a_wait_that_goes_on_raises_the_level_and_never_lowers_it() -> None:
    assert followed(0.0, 0.5, 2.0, censored=True) == 1.0
    assert followed(0.0, 0.5, -2.0, censored=True) == 0.0
    assert followed(0.0, 0.5, -2.0) == -1.0
    assert followed(0.0, 1.0, 1e9) == 2.5


# --- few samples ----------------------------------------------------------------------------------


def test_every_measured_phase_is_a_phase_and_has_a_prior() -> None:
    assert ("opening", *(phase.name for phase in PHASES)) == MEASURED_PHASES == tuple(PRIORS)


@pytest.mark.parametrize("phase", MEASURED_PHASES)
def test_a_prior_is_vague_and_sane(phase: str) -> None:
    fit = prior_fit(phase)
    one_gb = fit.unit().scaled(fit.work.bytes_of(1e9))
    assert 0.01 < one_gb.median() < 10
    assert one_gb.quantile(0.95) / one_gb.quantile(0.05) > 20


def test_the_first_samples_move_a_forecast_by_degrees() -> None:
    everything = samples(DRAWS["lognormal"], 30, seed=12, sizes=(500 * MB,))
    fits = [fit_phase(everything[:n]) for n in (1, 4, 12, 30)]
    widths = [fit.unit().quantile(0.95) / fit.unit().quantile(0.05) for fit in fits]
    assert widths[0] > 2 * widths[3]
    truth = (FIXED + 500 * MB) * 2e-9
    errors = [abs(math.log(f.unit().median() * f.work.bytes_of(500e6) / truth)) for f in fits]
    assert errors[3] < 0.2 and errors[1] < 0.5


def test_only_censored_samples_leave_the_prior() -> None:
    fit = fit_phase(samples(DRAWS["lognormal"], 3, seed=13, limit_s=1e-3))
    assert fit.family == "prior"


def test_a_source_has_a_fit_of_its_own_once_it_has_samples() -> None:
    near = samples(DRAWS["lognormal"], 60, seed=14, phase="replicate")
    far = samples(DRAWS["lognormal"], 60, seed=15, phase="replicate")
    both = [msgspec.structs.replace(s, source="near") for s in near]
    both += [msgspec.structs.replace(s, source="far", elapsed_s=5 * s.elapsed_s) for s in far]
    by_source = {fit.source: fit for fit in fit_all(both + samples(DRAWS["gamma"], 9, seed=16))}
    assert set(by_source) == {"", "near", "far"}
    near_s, far_s = (
        by_source[s].unit().median() * by_source[s].work.bytes_of(1e8) for s in ("near", "far")
    )
    assert far_s / near_s == pytest.approx(5, rel=0.3)


def test_a_node_that_is_slow_is_slow_both_ways() -> None:
    rng, made = np.random.default_rng(18), []
    for i in range(120):
        node, size = rng.normal(0, 0.3), (100 + i % 3) * MB
        for phase in ("replicate", "flush"):
            took = (FIXED + size) * 2e-9 * math.exp(node + rng.normal(0, 0.1))
            made.append(Sample(phase=phase, size_bytes=size, begin_s=10.0 * i, elapsed_s=took))
    replicate, flush = fit_all(made)
    assert flush.beside == pytest.approx(0.9, abs=0.06) and replicate.beside == 0.0
    both = Model([replicate, flush]).beside()
    assert both == flush.beside and Model().beside() == 0.0
    alone = [s for s in made if s.phase == "flush"] + samples(
        DRAWS["gamma"], 60, 3, phase="replicate"
    )
    assert fit_all(alone)[1].beside == 0.0


def test_a_fit_survives_json() -> None:
    fit = fit_phase(samples(DRAWS["mixture"], 80, seed=17))
    assert msgspec.json.decode(msgspec.json.encode(fit), type=PhaseFit) == fit
