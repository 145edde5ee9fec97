"""What is written when, and when others are busy: drawn once, the same for the same seed. Pure."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from typing import NamedTuple

MIB = 1 << 20
UNIQUE_BYTES = 512
"""No two of some 2,000 writes have one size: what the mount measured is found again by it."""

SHARDS_AT_MOST = 3


class Write(NamedTuple):
    """One file. `think_s`: before it begins. `sync`: the writer waits for its fsync."""

    size_bytes: int
    think_s: float
    sync: bool


class Spell(NamedTuple):
    """Somebody else is busy for `busy_s`, after `pause_s` of quiet."""

    pause_s: float
    busy_s: float


class Sizes(NamedTuple):
    """Log-uniform between two sizes, in bytes."""

    low: int
    high: int

    def draw(self, rng: random.Random) -> int:
        """One of them."""
        return int(math.exp(rng.uniform(math.log(self.low), math.log(self.high))))


def writes(seed: int, sizes: Sizes, think_s: float, first: int = 0) -> Iterator[Write]:
    """An ordinary training job without end: files with an fsync, each after a pause (exponential).

    One in six follows at once on one to three shards that are closed and not waited for, so it
    finds them on the links. `first`: the number of the first write.
    """
    rng = random.Random(seed)
    number = first
    while True:
        shards = rng.randint(1, SHARDS_AT_MOST) if rng.random() < 1 / 6 else 0
        pause_s = rng.expovariate(1.0 / think_s)
        for i in range(shards + 1):
            size = sizes.draw(rng) // (2 if i < shards else 1)
            unique = size // MIB * MIB + number * UNIQUE_BYTES
            yield Write(unique, pause_s if i == 0 else 0.0, sync=i == shards)
            number += 1


def sizes_without_end(seed: int, sizes: Sizes) -> Iterator[int]:
    """Checkpoints of one file each; no two of one size."""
    rng = random.Random(seed)
    for number in itertools.count():
        yield sizes.draw(rng) // MIB * MIB + number * UNIQUE_BYTES


def spells(seed: int, pause_s: tuple[float, float], busy_s: tuple[float, float]) -> Iterator[Spell]:
    """Bursts without end, of uniform lengths."""
    rng = random.Random(seed)
    while True:
        yield Spell(rng.uniform(*pause_s), rng.uniform(*busy_s))
