"""How good the forecasts of a source have been: the error of each, on a logarithmic scale.

Durations are wrong by factors, not by seconds, so the error is ln(actual / expected): its mean is
the bias, its standard deviation the sigma of a log-normal error. Welford's running moments.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(slots=True)
class Accuracy:
    """Running moments of one source's errors."""

    count: int = 0
    bias: float = 0.0
    _squares: float = 0.0

    def observe(self, expected_s: float, actual_s: float) -> None:
        """A forecast came true, or did not. Both in seconds; what is below one counts as one."""
        error = math.log(max(actual_s, 1.0) / max(expected_s, 1.0))
        self.count += 1
        step = error - self.bias
        self.bias += step / self.count
        self._squares += step * (error - self.bias)

    @property
    def sigma(self) -> float:
        """Standard deviation of the errors."""
        return math.sqrt(self._squares / self.count) if self.count else 0.0
