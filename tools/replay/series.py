"""GPUs held over time, from the placements."""

from __future__ import annotations

from collections.abc import Iterable

from tools.replay.spans import Span


def held_gpus(spans: Iterable[Span], end_s: int, bins: int) -> list[float]:
    """The mean number of GPUs held in each of so many equal parts of the time from 0 to `end_s`."""
    width_s = end_s / bins
    # A placement adds its GPUs from its start on and takes them off from its end on; `part` is
    # what it adds to the bin in which that happens, beyond what it adds to all later ones.
    steps, part = [0.0] * (bins + 1), [0.0] * (bins + 1)
    for span in spans:
        for at_s, gpus in ((span.placed_s, span.gpus), (span.released_s, -span.gpus)):
            place = min(at_s / width_s, float(bins))
            number = int(place)
            steps[number] += gpus
            part[number] -= gpus * (place - number)
    held, level = [], 0.0
    for number in range(bins):
        level += steps[number]
        held.append(level + part[number])
    return held
