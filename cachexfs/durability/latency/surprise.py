"""What a fit does not know yet: times that are all too long, or too short, one after the other.

A fit is made now and then. When a link is replaced, or another job begins to write, in the
meantime, every file is a surprise until the next fit. Two in a row on the same side are believed:
the forecast moves as far as the lesser of them and widens, follows, and goes back with the first
file that is as expected. Only where the fit itself follows nothing: a level with a gain, or spells,
move by themselves. Plain Python.
"""

from __future__ import annotations

import math

import msgspec

UNLIKELY = 0.01
"""Beyond these ends of the forecast a time is a surprise: two in a row on one side by chance come
once in 10,000 files."""

GAIN = 0.5
MOST = math.log(4.0)
"""Two stalls of minutes do not say that everything takes minutes now."""

WIDER = 1.5
"""How little is known of the spread then: intervals are wider by this factor of the logarithm."""

BELIEVED_S = 120.0
"""Nothing is believed longer without another file: a checkpoint later it may be over."""


class Surprise(msgspec.Struct, frozen=True):
    """`offset`: ln of a factor on the forecast; 0: as expected. `last`: ln of the last time over
    its forecast, 0 when that was as expected. `at_s`: when that ended (since the epoch).
    """

    offset: float = 0.0
    last: float = 0.0
    at_s: float = 0.0

    def saw(self, excess: float, share: float, end_s: float, *, censored: bool = False) -> Surprise:
        """After another file. `excess`: ln of its time over the median that the fit would forecast;
        `share`: the probability of that or less. A censored one can only be too long.
        """
        too_long, too_short = share > 1.0 - UNLIKELY, share < UNLIKELY
        if censored and not too_long:
            return self
        if not too_long and not too_short:
            return Surprise()
        if self.offset_at(end_s):
            return Surprise(self.offset + GAIN * (excess - self.offset), excess, end_s)
        again = self.last * excess > 0.0 and end_s - self.at_s <= BELIEVED_S
        return Surprise(min(self.last, excess, key=abs) if again else 0.0, excess, end_s)

    def offset_at(self, now_s: float) -> float:
        """What is still believed then."""
        believed = min(max(self.offset, -MOST), MOST)
        return believed if now_s - self.at_s <= BELIEVED_S else 0.0
