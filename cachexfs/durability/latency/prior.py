"""What is believed of a phase before anything was measured. Rough on purpose, and soon outvoted."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cachexfs.durability.latency.curve import Curve, grid, lognormal
from cachexfs.durability.latency.fit import PhaseFit
from cachexfs.durability.latency.sample import Work

PRIOR_WEIGHT = 2.0
"""A prior counts as so many samples at first; with `PRIOR_GONE` samples it counts for nothing."""

PRIOR_GONE = 30

PRIOR_SPREAD = 1.0
"""Standard deviation of ln time: nine cases of ten between a fifth and five times the median. Wide
enough to cover an old disk and a new NVMe, so that a first forecast is vague and not wrong."""

TOGETHER = 0.5
"""Correlation of files under way at the same time before it is measured: they share the links and
the servers (so not 0), and each has stalls of its own (so not 1)."""


@dataclass(frozen=True, slots=True)
class Prior:
    """A fixed cost in seconds, a rate in bytes per second, the share of what is ahead."""

    fixed_s: float
    rate: float
    ahead_share: float

    @property
    def work(self) -> Work:
        """The work that it believes in."""
        return Work(self.fixed_s * self.rate, self.ahead_share)


PRIORS: dict[str, Prior] = {
    # Some questions to a shared file system; they wait for what is flushed to it at the time.
    "opening": Prior(fixed_s=0.02, rate=4e8, ahead_share=0.3),
    # A program that copies from device to host memory and writes it: a core moves some GB/s.
    "capture": Prior(fixed_s=0.002, rate=2e9, ahead_share=0.0),
    # 10 GbE carries 1.2 GB/s, an NVMe drive writes 1 to 3; an fsync there takes milliseconds. The
    # line to a peer is one line: what is ahead has to be sent first.
    "replicate": Prior(fixed_s=0.01, rate=1e9, ahead_share=1.0),
    # One client of a shared file system under load: some hundred MB/s. Four files at a time.
    "flush": Prior(fixed_s=0.05, rate=4e8, ahead_share=0.5),
    # fsync of what was fsynced already, rename, fsync of the directory: round trips, not bytes of
    # its own; but they wait for those of the files that are being flushed.
    "commit": Prior(fixed_s=0.03, rate=4e8, ahead_share=0.3),
}


def prior_fit(phase: str) -> PhaseFit:
    """The prior in the form of a fit to no samples."""
    prior = PRIORS[phase]
    unit = lognormal(1.0 / prior.rate, PRIOR_SPREAD)
    return PhaseFit(
        phase=phase, family="prior", parameters=(-math.log(prior.rate), PRIOR_SPREAD),
        work=prior.work, together=TOGETHER, unit_times=_times(unit),
    )  # fmt: skip


def prior_points(phase: str) -> list[float]:
    """The prior as five equally likely times per byte of work."""
    unit = lognormal(1.0 / PRIORS[phase].rate, PRIOR_SPREAD)
    return [unit.quantile(p) for p in (0.1, 0.3, 0.5, 0.7, 0.9)]


def prior_weight(samples: int) -> float:
    """For how many samples the prior counts beside so many real ones."""
    return PRIOR_WEIGHT * max(0.0, 1.0 - samples / PRIOR_GONE)


def _times(unit: Curve) -> tuple[float, ...]:
    return tuple(unit.quantile(p) for p in grid())
