"""How large the next file will be: as large as those of the same name pattern were. Pure."""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from statistics import median_high

PATTERNS_AT_MOST = 256
"""The pattern that was not seen for longest is forgotten first."""
SIZES_KEPT = 3
"""One size that is out of the ordinary does not decide."""

_DIGITS = re.compile(rb"[0-9]+")


def pattern_of(path: bytes) -> bytes:
    """A path with every run of digits replaced: `step-100/shard-3.pt` is `step-#/shard-#.pt`."""
    return _DIGITS.sub(b"#", path)


class Forecast:
    """The last sizes of each pattern, in bytes."""

    def __init__(self) -> None:
        self._sizes: OrderedDict[bytes, deque[int]] = OrderedDict()

    def learn(self, pattern: bytes, size_bytes: int) -> None:
        """A file of this pattern was closed with this size."""
        sizes = self._sizes.setdefault(pattern, deque(maxlen=SIZES_KEPT))
        sizes.append(size_bytes)
        self._sizes.move_to_end(pattern)
        if len(self._sizes) > PATTERNS_AT_MOST:
            self._sizes.popitem(last=False)

    def size_of(self, pattern: bytes) -> int:
        """The size that the next file of this pattern will have; 0 when nothing is known."""
        sizes = self._sizes.get(pattern)
        return median_high(sizes) if sizes else 0
