"""Rendezvous hashing: every node puts the members into the same order for a key, asking nobody.

The member with the highest score comes first (Thaler and Ravishankar, 1998). A member that comes or
goes changes the place of no other: only the keys whose first it was, or becomes, move.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable


def score(key: bytes, name: str) -> int:
    """64 bits that depend on the key and the member alone."""
    digest = hashlib.blake2b(name.encode(), digest_size=8, key=hashlib.sha256(key).digest())
    return int.from_bytes(digest.digest(), "big")


def first(key: bytes, names: Iterable[str], count: int) -> list[str]:
    """The `count` names that come first for a key."""
    salt = hashlib.blake2b(key=hashlib.sha256(key).digest(), digest_size=8)

    def rank(name: str) -> tuple[int, str]:
        state = salt.copy()
        state.update(name.encode())
        return int.from_bytes(state.digest(), "big"), name

    return heapq.nlargest(count, names, key=rank)
