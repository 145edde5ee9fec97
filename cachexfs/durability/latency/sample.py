"""What is kept of one phase of one file, and what the time of a phase is taken to depend on."""

from __future__ import annotations

import msgspec

MEASURED_PHASES = ("capture", "replicate", "flush", "commit")
"""The phases of `durability.states.PHASES`, in their order; each has a model of its own."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One phase of one file. Bytes and seconds; `begin_s` since the epoch.

    `elapsed_s` is how long it took or, when `censored`, how long it had taken when it was last
    seen or given up: then the time it would have taken is longer than that (right-censoring).
    `ahead_bytes`: bytes of the same phase that were still to be moved when it began.
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

    def bytes_of(self, size_bytes: float, ahead_bytes: float = 0, beside_bytes: float = 0) -> float:
        """The work of a file of this size that begins under this load, in bytes."""
        load = self.ahead_share * ahead_bytes + self.beside_share * beside_bytes
        return self.fixed_bytes + size_bytes + load

    def of(self, sample: Sample) -> float:
        """The work of a sample, in bytes, with what came later."""
        known = self.bytes_of(sample.size_bytes, sample.ahead_bytes, sample.beside_bytes)
        return known + self.behind_share * sample.behind_bytes
