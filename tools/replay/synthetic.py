"""A trace that is made up: arrivals in bursts, durations with a heavy tail, a seed.

Its numbers are those of Microsoft Philly as the shared trace has it: arrivals every 97 s in the
mean with a coefficient of variation of 15, 8 % in the same second as another; durations of 1,144 s
in the median and 13,136 s in the mean. Gangs are more frequent than Philly's 7 %, so that the mean
demand comes to Philly's (about 350 GPUs) without its dependence of duration on size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import accumulate
from random import Random

from tools.replay.traces import TraceJob

MEDIAN_DURATION_S = 1144.0
MEAN_DURATION_S = 13136.0
# A log-normal's mean is its median times exp(sigma^2 / 2).
SIGMA = math.sqrt(2 * math.log(MEAN_DURATION_S / MEDIAN_DURATION_S))
# Jobs of one name resemble each other: this much of sigma is left within a name.
SIGMA_WITHIN_NAME = 1.0
LONGEST_S = 120 * 86400.0  # no job takes longer than the traces last

# Gaps between arrivals are exponential with a mean that depends on a hidden state. Half of the
# arrivals come in bursts, and a burst goes on with probability STAY (six in a row on average).
# A silence of 20 hours every 5,000 jobs gives the coefficient of variation of 15.
BURST_GAP_S, CALM_GAP_S, SILENCE_S = 3.0, 162.0, 73_000.0
STAY = 5 / 6
SILENCE_PROBABILITY = 2e-4

SIZES = {1: 0.70, 2: 0.10, 4: 0.08, 8: 0.09, 16: 0.02, 32: 0.01}
USERS = 300
NAMES_A_USER = 10


def generate(jobs: int, seed: int) -> Iterator[TraceJob]:
    """So many jobs, in order of submission; the same for the same seed."""
    random = Random(seed)
    medians = [_name_median_s(random) for _ in range(USERS * NAMES_A_USER)]
    sizes, weights = list(SIZES), list(accumulate(SIZES.values()))
    at_s, burst, kind, gpus = 0.0, False, 0, 1
    for number in range(jobs):
        if random.random() >= STAY:
            burst = not burst
        if not burst or number == 0 or random.random() >= STAY:
            kind = random.randrange(len(medians))
            gpus = random.choices(sizes, cum_weights=weights)[0]
        at_s += _gap_s(random, burst)
        duration_s = min(LONGEST_S, random.lognormvariate(medians[kind], SIGMA_WITHIN_NAME))
        user, name = divmod(kind, NAMES_A_USER)
        yield TraceJob(str(number), at_s, duration_s, gpus, f"user{user}", f"name{name}")


def _name_median_s(random: Random) -> float:
    """The logarithm of the median duration of the jobs of one name."""
    between = math.sqrt(SIGMA**2 - SIGMA_WITHIN_NAME**2)
    return random.normalvariate(math.log(MEDIAN_DURATION_S), between)


def _gap_s(random: Random, burst: bool) -> float:
    if random.random() < SILENCE_PROBABILITY:
        return random.expovariate(1 / SILENCE_S)
    return random.expovariate(1 / (BURST_GAP_S if burst else CALM_GAP_S))
