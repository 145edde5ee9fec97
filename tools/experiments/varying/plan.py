"""What one run does, and who runs where. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

from cachexfs.errors import UsageError

MIB = 1 << 20
Profile = Literal["steady", "bursts", "stalls"]
Writer = Literal["raw", "torch"]
Place = Literal["direct", "durable", "tmpfs", "captured", "replicated", "copy"]

PROFILES: tuple[Profile, ...] = ("steady", "bursts", "stalls")
WRITERS: tuple[Writer, ...] = ("raw", "torch")
PLACES: dict[Place, str] = {
    "direct": "directly on the shared file system",
    "durable": "mount, fsync = durable",
    "tmpfs": "native tmpfs with the RAM tier's options",
    "captured": "mount, fsync = captured",
    "copy": "native tmpfs, then a plain copy to the peer",
    "replicated": "mount, fsync = replicated",
}
SLOW: tuple[Place, ...] = ("direct", "direct", "durable", "direct", "direct")
"""The turns of the slow lane; each place with every writer."""
FAST: tuple[tuple[Place, ...], ...] = (
    ("tmpfs", "captured"),
    ("captured", "tmpfs"),
    ("tmpfs", "captured", "copy", "replicated"),
)
"""The turns of the fast lane. What is sent to the peer comes up less often: it takes the second
core's time from the storage host."""

HOST_OF: dict[str, int] = {"captured": 1, "replicated": 2, "durable": 3, "direct": 3, "noise": 4}
"""Each level has a mount of its own, on a host of its own; the noise comes from one that saves
nothing."""
LEVELS = {1: "captured", 2: "replicated", 3: "durable"}
SAVING_CORE, OTHER_CORE = 0, 1
COMES_UP_S = 30.0
"""The cluster, two processes that import PyTorch, and the warming up; for the budget of time."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `minutes` is for all of it; `rate_bits` is the storage host's link at its best.

    Raises `UsageError`.
    """

    minutes: float = 24.0
    size_bytes: int = 512 * MIB
    rate_bits: int = 600_000_000
    profiles: tuple[Profile, ...] = PROFILES
    seed: int = 1
    layers: int = 6

    def __post_init__(self) -> None:
        for broken, why in (
            (self.minutes < 1.5, "--minutes must be 1.5 or more"),
            (self.size_bytes < MIB, "--size must be 1MiB or more"),
            (not self.profiles, "no profile"),
        ):
            if broken:
                raise UsageError(why)

    @property
    def profile_s(self) -> float:
        """The time for one profile. The last save of it may end a little later."""
        return (60 * self.minutes - COMES_UP_S) / len(self.profiles)

    @property
    def ram_bytes(self) -> int:
        """Of a RAM tier: room for several saves, so that it is never what holds a save up."""
        return 4 * max(self.size_bytes, 700 * MIB)


def quick() -> Plan:
    """Small enough to try whether it works: the figures mean little."""
    return Plan(minutes=3.0, size_bytes=64 * MIB, layers=1)
