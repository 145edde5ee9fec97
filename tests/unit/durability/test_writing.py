"""A whole write: held against simulation, with something ahead of it on the line."""

from __future__ import annotations

import functools

import msgspec
import numpy as np
import pytest

from cachexfs.durability.composition import later
from cachexfs.durability.forecast import Model
from cachexfs.durability.latency.curve import grid, lognormal
from cachexfs.durability.latency.fit import PhaseFit
from cachexfs.durability.latency.prior import PRIOR_GONE, prior_fit
from cachexfs.durability.latency.sample import MEASURED_PHASES, Work
from cachexfs.durability.paths import Traffic
from cachexfs.durability.writing import JOURNEYS, WRITES, composed, is_known

MB = 1_000_000
RATES = {"opening": 4e6, "capture": 2e9, "replicate": 50e6, "flush": 25e6, "commit": 10e6}
"""Bytes a second."""

SPREADS = {"opening": 0.5, "capture": 0.3, "replicate": 0.1, "flush": 0.1, "commit": 0.4}
FIXED = 400_000.0
SIZE = 20 * MB
DRAWS = 40_000


def fit(phase: str) -> PhaseFit:
    unit = lognormal(1.0 / RATES[phase], SPREADS[phase])
    return msgspec.structs.replace(
        prior_fit(phase), work=Work(FIXED, 1.0 if phase in ("replicate", "flush") else 0.0),
        unit_times=tuple(unit.quantile(p) for p in grid()), samples=PRIOR_GONE,
    )  # fmt: skip


@functools.cache
def model() -> Model:
    return Model([fit(phase) for phase in MEASURED_PHASES])


def simulated(ahead: dict[str, int]) -> dict[str, np.ndarray]:
    """The line moves what is ahead while the program opens and writes; then this file."""
    rng = np.random.default_rng(3)
    unit = {
        phase: np.exp(rng.normal(0.0, SPREADS[phase], DRAWS)) / RATES[phase]
        for phase in MEASURED_PHASES
    }
    until = FIXED * unit["opening"] + (FIXED + SIZE) * unit["capture"]
    ends = {
        phase: np.maximum(until, ahead[phase] * unit[phase]) + (FIXED + SIZE) * unit[phase]
        for phase in ("replicate", "flush")
    }
    durable = ends["flush"] + FIXED * unit["commit"]
    return {
        "replicated": ends["replicate"], "durable": durable,
        "safe": np.minimum(ends["replicate"], durable),
    }  # fmt: skip


@pytest.mark.parametrize("replicating", [0, 5 * MB, 50 * MB])
@pytest.mark.parametrize("flushing", [0, 30 * MB])
def test_what_is_ahead_moves_while_the_program_opens(replicating: int, flushing: int) -> None:
    traffic = Traffic((("peer", replicating),), flushing)
    made = composed(model(), SIZE, traffic, 1)
    seen = simulated({"replicate": replicating, "flush": flushing})
    for to in JOURNEYS:
        for p in (0.05, 0.25, 0.5, 0.75, 0.95):
            expected = float(np.quantile(seen[to], p))
            assert getattr(made, to).quantile(p) == pytest.approx(expected, rel=0.05), (to, p)


def test_the_later_of_two_that_are_slow_together() -> None:
    narrow, wide = lognormal(1.0, 0.1), lognormal(1.0, 0.5)
    made = later(narrow, wide)
    for p in (0.01, 0.3, 0.7, 0.99):
        assert made.quantile(p) == pytest.approx(
            max(narrow.quantile(p), wide.quantile(p)), rel=0.02
        )


def test_a_forecast_is_known_when_all_that_it_needs_is_fitted() -> None:
    fits = {phase: fit(phase) for phase in MEASURED_PHASES}
    assert all(is_known(model(), kind) for kind in (*JOURNEYS, *WRITES.values()))
    few = msgspec.structs.replace(fits["opening"], samples=PRIOR_GONE + 5, censored=6)
    some = Model([*(fits[phase] for phase in MEASURED_PHASES[1:]), few])
    assert all(is_known(some, kind) for kind in JOURNEYS)
    assert not any(is_known(some, kind) for kind in WRITES.values())
    assert not is_known(Model([fits["flush"]]), "durable")
