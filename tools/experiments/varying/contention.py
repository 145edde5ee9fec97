"""The profiles of contention as schedules: what other hosts do to the storage host, and when. Pure.

A schedule is endless and made of segments. It comes from a seed alone, so two runs see the same.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec

from tools.experiments.varying.plan import Profile

WRITERS = 2
"""Files that another host writes at once."""

BURST_S, LULL_S = 12.0, 12.0
"""Means of exponential times (an on-off source)."""
BURST_SHARE = 0.25
"""Of the storage host's link in a burst: the rest goes to hosts that are not here."""

STALL_S, STALL_SHAPE, STALL_AT_MOST_S = 2.0, 1.2, 35.0
"""Pareto: the shortest stall and the shape; below 2 its variance is infinite. A GlusterFS client
gives up a server that is silent for 42 s, which is another experiment."""
BETWEEN_STALLS_S = 12.0
CRAWL_BITS = 4_000_000


class Segment(msgspec.Struct, frozen=True):
    """For `lasts_s` another host writes `writers` files, and the storage host's link is so wide."""

    lasts_s: float
    writers: int
    rate_bits: int


def schedule(profile: Profile, rate_bits: int, seed: int) -> Iterator[Segment]:
    """The segments of a profile, without end."""
    random_ = random.Random(f"{profile} {seed}")
    if profile == "steady":
        return _steady(rate_bits)
    if profile == "bursts":
        return _bursts(rate_bits, random_)
    return _stalls(rate_bits, random_)


def _steady(rate_bits: int) -> Iterator[Segment]:
    while True:
        yield Segment(60.0, WRITERS, rate_bits)


def _bursts(rate_bits: int, random_: random.Random) -> Iterator[Segment]:
    while True:
        yield Segment(random_.expovariate(1 / LULL_S), 0, rate_bits)
        yield Segment(random_.expovariate(1 / BURST_S), WRITERS, int(rate_bits * BURST_SHARE))


def _stalls(rate_bits: int, random_: random.Random) -> Iterator[Segment]:
    while True:
        yield Segment(random_.expovariate(1 / BETWEEN_STALLS_S), WRITERS, rate_bits)
        stall_s = min(STALL_AT_MOST_S, STALL_S * random_.paretovariate(STALL_SHAPE))
        yield Segment(stall_s, WRITERS, CRAWL_BITS)
