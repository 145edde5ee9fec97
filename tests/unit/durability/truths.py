"""Storage whose truth is known: samples of phases drawn from given distributions, seeded."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from cachexfs.durability.latency.sample import Sample

MB = 1_000_000

FIXED = 2e7
"""Bytes of fixed cost in every truth here."""

Draw = Callable[[np.random.Generator], float]

DRAWS: dict[str, Draw] = {
    "lognormal": lambda rng: 2e-9 * math.exp(rng.normal(0.0, 0.4)),
    "gamma": lambda rng: float(rng.gamma(4.0, 5e-10)),
    "weibull": lambda rng: 2e-9 * float(rng.weibull(3.0)),
    "mixture": lambda rng: (2e-9 if rng.random() < 0.8 else 16e-9) * math.exp(rng.normal(0.0, 0.2)),
}
"""Seconds per byte."""


def samples(
    draw: Draw,
    count: int,
    seed: int,
    *,
    sizes: Sequence[int] = (1 * MB, 30 * MB, 500 * MB),
    every_s: float = 10.0,
    limit_s: float = math.inf,
    phase: str = "flush",
) -> list[Sample]:
    """One file each `every_s`; what takes longer than `limit_s` is censored there."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(count):
        size = int(rng.choice(sizes))
        took = (FIXED + size) * draw(rng)
        made.append(
            Sample(
                phase=phase, size_bytes=size, begin_s=i * every_s,
                elapsed_s=min(took, limit_s), censored=took > limit_s,
            )
        )  # fmt: skip
    return made


def bursts(slower: float = 6.0, enter: float = 0.05, leave: float = 0.2) -> Draw:
    """A file system that is log-normal most of the time and slower in bursts that last."""
    state = {"slow": False}

    def draw(rng: np.random.Generator) -> float:
        if rng.random() < (leave if state["slow"] else enter):
            state["slow"] = not state["slow"]
        return DRAWS["lognormal"](rng) * (slower if state["slow"] else 1.0)

    return draw
