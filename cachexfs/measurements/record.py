"""One measured stretch of a file's way, with what was forecast when it began."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from cachexfs.durability.calibration import Outcome
from cachexfs.durability.latency.sample import MEASURED_PHASES, Sample
from cachexfs.durability.score import Forecast
from cachexfs.durability.writing import JOURNEYS, WRITES

State = Literal["running", "ended", "given up"]

WHOLE = (*JOURNEYS, *WRITES.values())
"""From settling, or from the opening, to a state: composed of phases, so they are scored and
corrected, and not fitted."""

KINDS = (*MEASURED_PHASES, *WHOLE)


class Record(msgspec.Struct, kw_only=True):
    """As `Sample`; `id` grows with time. `path`: the way that was chosen.

    `quantiles` are those forecast when it began, in seconds, at `score.LEVELS`; empty when none was
    made. `composed`: of a whole way, what they were before they were corrected. `state` "given up":
    the file was deleted or rewritten, or the daemon ended, so it would have taken longer than
    `elapsed_s`.
    """

    id: int
    phase: str
    size_bytes: int
    begin_s: float
    elapsed_s: float = 0.0
    state: State = "running"
    source: str = ""
    path: str = ""
    job: str = ""
    ahead_bytes: int = 0
    beside_bytes: int = 0
    behind_bytes: int = 0
    quantiles: tuple[float, ...] = ()
    composed: tuple[float, ...] = ()

    def sample(self) -> Sample:
        """For fitting."""
        return Sample(
            phase=self.phase, size_bytes=self.size_bytes, begin_s=self.begin_s,
            elapsed_s=self.elapsed_s, censored=self.state != "ended", source=self.source,
            ahead_bytes=self.ahead_bytes, beside_bytes=self.beside_bytes,
            behind_bytes=self.behind_bytes,
        )  # fmt: skip

    def forecast(self) -> Forecast | None:
        """For scoring; None when there is none, or no end to hold it against."""
        if self.state != "ended" or not self.quantiles:
            return None
        return Forecast(self.phase, self.begin_s, self.quantiles, self.elapsed_s)

    def outcome(self) -> Outcome | None:
        """For the correction of later ones; None when it teaches nothing."""
        if self.state != "ended" or not self.composed:
            return None
        return Outcome(self.composed, self.elapsed_s)


def samples(records: Sequence[Record]) -> list[Sample]:
    """Those that are fitted: phases, and of those still running only what says something."""
    return [
        record.sample()
        for record in records
        if record.phase in MEASURED_PHASES and record.elapsed_s > 0
    ]
