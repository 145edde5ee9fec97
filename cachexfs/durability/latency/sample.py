"""What is kept of one phase of one file, and what the time of a phase is taken to depend on."""

from __future__ import annotations

import msgspec

MEASURED_PHASES = ("opening", "capture", "replicate", "flush", "commit")
"""What comes before a file has any state, then the phases of `durability.states.PHASES` in their
order; each has a model of its own."""

COPIED_IN_COMMIT_BYTES = 1 << 20
"""Files up to this size are copied in their turn, so the copying counts in the commit."""


def moved_bytes(phase: str, size_bytes: int) -> int:
    """How many bytes of a file of this size a phase has to move."""
    if phase == "commit":
        return size_bytes if size_bytes <= COPIED_IN_COMMIT_BYTES else 0
    return 0 if phase == "opening" else size_bytes


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One phase of one file. Bytes and seconds; `begin_s` since the epoch.

    `elapsed_s` is how long it took or, when `censored`, how long it had taken when it was last
    seen or given up: then the time it would have taken is longer than that (right-censoring).
    `ahead_bytes`: bytes of the same phase that were still to be moved when it began; of an opening
    and a commit, which move few themselves, those of all files in flush, on whose line they wait.
    `beside_bytes`: those on the other way to safety then (the flush beside a replication, and the
    other way round). `behind_bytes`: bytes of the same phase that came while it was under way, as
    far as it can have shared with them; nobody knew of them when it began, so they explain what it
    took and are no part of a forecast.
    """

    phase: str
    size_bytes: int
    begin_s: float
    elapsed_s: float
    censored: bool = False
    source: str = ""
    ahead_bytes: int = 0
    beside_bytes: int = 0
    behind_bytes: int = 0

    @property
    def moved_bytes(self) -> int:
        """How many bytes of its own it has to move."""
        return moved_bytes(self.phase, self.size_bytes)


class Work(msgspec.Struct, frozen=True):
    """How many bytes' worth of time a file takes: the time is `bytes_of(...)` over a random rate.

    `fixed_bytes` is the fixed cost, as the bytes that could have been moved meanwhile. It is a
    cost in bytes and not in seconds because what slows a transfer slows its round trips and
    fsyncs too: a constant would leave a commit or a small file no spread at all, and a likelihood
    without bound at the smallest sample. `ahead_share`, `beside_share`, `behind_share`: what part
    of the bytes under way at the same time has to be waited for.
    """

    fixed_bytes: float
    ahead_share: float = 0.0
    beside_share: float = 0.0
    behind_share: float = 0.0

    def bytes_of(
        self, moved_bytes: float, ahead_bytes: float = 0, beside_bytes: float = 0
    ) -> float:
        """The work of a phase that has so many bytes to move and begins under this load."""
        return self.fixed_bytes + moved_bytes + self.of_load(ahead_bytes, beside_bytes)

    def of_load(self, ahead_bytes: float, beside_bytes: float) -> float:
        """What the load adds to it."""
        return self.ahead_share * ahead_bytes + self.beside_share * beside_bytes

    def of(self, sample: Sample) -> float:
        """The work of a sample, in bytes, with what came later."""
        known = self.bytes_of(sample.moved_bytes, sample.ahead_bytes, sample.beside_bytes)
        return known + self.behind_share * sample.behind_bytes
