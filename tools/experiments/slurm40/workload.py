"""The forty jobs: drawn once from a seed, the same for every way."""

from __future__ import annotations

import random
from dataclasses import dataclass

JOBS = 40
SEED = 40
ARRIVALS_S = 1.1
"""Mean time between two submissions; about one and a half times what twelve GPUs can take."""

SHAPES = ((1, 1), (1, 1), (1, 1), (1, 2), (1, 2), (1, 4), (1, 4), (2, 4))
"""(nodes, GPUs of each), all equally likely."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job; times in seconds from the beginning, or of its own."""

    number: int
    submit_s: float
    nodes: int
    gpus: int
    setup_s: float
    work_s: float
    is_high: bool

    @property
    def partition(self) -> str:
        """Short work is urgent."""
        return "high" if self.is_high else "low"

    @property
    def comment(self) -> str:
        """What lazerd is told: how long it works, and how long its set-up takes."""
        return f"lazer estimate={self.work_s:.1f} setup={self.setup_s:.1f} grace=4"


def workload(jobs: int = JOBS, seed: int = SEED) -> list[Job]:
    """The jobs in order of submission."""
    draw = random.Random(seed)
    made, at_s = [], 0.0
    for number in range(jobs):
        at_s += draw.expovariate(1 / ARRIVALS_S)
        nodes, gpus = draw.choice(SHAPES)
        is_high = draw.random() < 0.5
        work_s = draw.uniform(2, 6) if is_high else draw.uniform(12, 30)
        made.append(Job(number, at_s, nodes, gpus, draw.uniform(3, 6), work_s, is_high))
    return made
