"""How forecasts of whole ways came true, and the corrections that follow. One thread at a time.

To make a correction takes some milliseconds, which the event loop does not have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from cachexfs.durability.calibration import REMEMBERED, Correction, Outcome, learned
from cachexfs.durability.score import WEEK_S
from cachexfs.measurements.record import WHOLE, Record
from cachexfs.measurements.store import Store


class Corrections:
    """Of one mount. What ended comes from one thread, and corrections are made in another."""

    def __init__(self) -> None:
        self._outcomes: dict[str, deque[Outcome]] = {
            kind: deque(maxlen=REMEMBERED) for kind in WHOLE
        }
        self._news: set[str] = set()
        self._made: dict[str, Correction] = {}

    @property
    def has_news(self) -> bool:
        """Whether something came true since corrections were made."""
        return bool(self._news)

    def came_true(self, records: Sequence[Record]) -> None:
        """These ended, or go on; the first that ended comes first."""
        for record in records:
            outcome = record.outcome()
            if outcome is not None and record.phase in self._outcomes:
                self._outcomes[record.phase].append(outcome)
                self._news.add(record.phase)

    def made(self) -> dict[str, Correction]:
        """What is known now, by kind."""
        news, self._news = self._news, set()
        for kind in news:
            self._made[kind] = learned(tuple(self._outcomes[kind]))
        return dict(self._made)


def of_last_week(store: Store, now_s: float) -> Corrections:
    """What a store has to teach. Blocking."""
    made = Corrections()
    for kind in WHOLE:
        made.came_true(store.newest(kind, REMEMBERED, now_s - WEEK_S))
    return made
