"""What one partner is sent ahead of its offers. Pure: no I/O, no clock.

The chunks of a file are one draft, numbered by this side. Drafts hold for one connection: after a
new one they begin again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

MAX_DRAFTS = 32
"""Drafts begun at a time; the peer refuses more than `intake.MAX_DRAFTS`."""


@dataclass
class _Draft:
    """A file: chunks [first, next) were sent, those before `complete` may be.

    Number 0: not begun.
    """

    first: int
    next: int
    complete: int
    open_content: Callable[[], int | None]
    number: int = 0


class Piece(NamedTuple):
    """A chunk to send now."""

    draft: int
    chunk: int
    open_content: Callable[[], int | None]


class Scrapped(NamedTuple):
    """A draft that is not wanted any more."""

    draft: int


class Sent(NamedTuple):
    """What an offer can build on. Draft 0: nothing."""

    draft: int = 0
    chunks: range = range(0)


NOTHING = Sent()


class Ahead:
    """The drafts for one partner, by whatever names their files."""

    def __init__(self) -> None:
        self._drafts: dict[int, _Draft] = {}
        self._scrapped: deque[int] = deque()
        self._last = 0

    def offer(
        self, key: int, first: int, complete: int, open_content: Callable[[], int | None]
    ) -> bool:
        """Chunks [first, complete) of a file can be sent; whether that is news."""
        draft = self._drafts.get(key)
        if draft is None:
            draft = self._drafts[key] = _Draft(first, first, first, open_content)
        is_news = complete > draft.complete
        draft.complete = max(draft.complete, complete)
        return is_news

    def next(self) -> Piece | Scrapped | None:
        """What to send now; it counts as sent."""
        if self._scrapped:
            return Scrapped(self._scrapped.popleft())
        begun = sum(draft.number > 0 for draft in self._drafts.values())
        for draft in self._drafts.values():
            if draft.next < draft.complete and (draft.number or begun < MAX_DRAFTS):
                return self._piece(draft)
        return None

    def sent(self, key: int) -> int:
        """Up to which chunk a file was sent."""
        draft = self._drafts.get(key)
        return draft.next if draft is not None else 0

    def take(self, key: int) -> Sent:
        """The file is about to be offered: what was sent of it."""
        draft = self._drafts.pop(key, None)
        if draft is None or not draft.number:
            return NOTHING
        return Sent(draft.number, range(draft.first, draft.next))

    def drop(self, key: int) -> None:
        """The file will not be offered, or not like this."""
        self.scrap(self.take(key).draft)

    def scrap(self, number: int) -> None:
        """No offer will come for what was taken under this number (0: nothing)."""
        if number:
            self._scrapped.append(number)

    def reconnected(self) -> None:
        """The peer has forgotten all drafts."""
        self._scrapped.clear()
        for draft in self._drafts.values():
            draft.next, draft.number = draft.first, 0

    def _piece(self, draft: _Draft) -> Piece:
        if not draft.number:
            self._last += 1
            draft.number = self._last
        draft.next += 1
        return Piece(draft.number, draft.next - 1, draft.open_content)
