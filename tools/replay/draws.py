"""Random numbers that depend on a seed and a name alone, never on the order of drawing."""

from __future__ import annotations

from hashlib import blake2b
from statistics import NormalDist

_NORMAL = NormalDist()
_STEPS = 1 << 64


def uniform(seed: int, purpose: str, name: str) -> float:
    """A number above 0 and below 1: the same for the same three, on any machine."""
    digest = blake2b(f"{seed}/{purpose}/{name}".encode(), digest_size=8).digest()
    # 53 bits, the precision of a float, with the half step that keeps both ends out.
    return ((int.from_bytes(digest, "big") >> 11) + 0.5) / (_STEPS >> 11)


def normal(seed: int, purpose: str, name: str) -> float:
    """A standard normal number, by the inverse of its distribution."""
    return _NORMAL.inv_cdf(uniform(seed, purpose, name))
