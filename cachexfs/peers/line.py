"""The orders for one partner, from `submit` to their outcome. Pure: no I/O, no clock.

Orders are sent and finished in the order in which they were submitted: `settle` gives out finished
ones from the front only. Their ids grow by one with each, over all connections; that is how the
peer knows what it has carried out already.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from cachexfs.durability.checksum import chunk_count
from cachexfs.peers.messages import Welcome
from cachexfs.peers.orders import ACKED, Order, Outcome, Put

WINDOW_ORDERS = 64
"""Sent and not yet answered: what one group commit of the peer can take together."""


@dataclass(eq=False)
class Entry:
    """An order under way.

    `needs`: how often the peer has said which chunks it needs; `shrinks`: whether compressing the
    last chunk was worth it.
    """

    id: int
    order: Order
    sent: bool = False
    committed: bool = False
    needs: int = 0
    shrinks: bool = True
    fd: int | None = None
    outcome: Outcome | None = None

    @property
    def size_bytes(self) -> int:
        """The content's size."""
        return self.order.replica.size_bytes if isinstance(self.order, Put) else 0

    @property
    def chunks(self) -> int:
        """How many chunks the content has."""
        return chunk_count(self.size_bytes)


@dataclass
class Line:
    """All orders that have no outcome yet, or wait for an earlier one that has none."""

    behind_bytes: int = 0
    _entries: deque[Entry] = field(default_factory=deque)
    _unsent: deque[Entry] = field(default_factory=deque)
    _sent: dict[int, Entry] = field(default_factory=dict)
    _last_id: int = 0
    _answered_id: int = 0

    def submit(self, order: Order) -> None:
        """Append an order."""
        self._last_id += 1
        entry = Entry(self._last_id, order)
        self._entries.append(entry)
        self._unsent.append(entry)
        self.behind_bytes += entry.size_bytes

    def next_to_send(self) -> Entry | None:
        """The first order that was not sent, when the window has room for it; it counts as sent."""
        if not self._unsent or len(self._sent) >= WINDOW_ORDERS:
            return None
        entry = self._unsent.popleft()
        entry.sent = True
        self._sent[entry.id] = entry
        return entry

    def sent(self, order_id: int) -> Entry | None:
        """The order that was sent under this id and has no outcome."""
        return self._sent.get(order_id)

    def finish(self, entry: Entry, outcome: Outcome) -> None:
        """An order has its outcome."""
        entry.outcome = outcome
        if outcome.kind != "dropped":
            self._answered_id = max(self._answered_id, entry.id)
        self.behind_bytes -= entry.size_bytes
        self._sent.pop(entry.id, None)

    def settle(self) -> list[tuple[Order, Outcome]]:
        """The orders whose turn it is to be reported, in order; they leave the line."""
        settled = []
        while self._entries and (outcome := self._entries[0].outcome) is not None:
            settled.append((self._entries.popleft().order, outcome))
        return settled

    def forgotten_by(self, welcome: Welcome) -> bool:
        """Whether the peer knows less than it has answered: its store was lost or replaced."""
        return welcome.done_id < self._answered_id

    def reconnected(self, welcome: Welcome) -> None:
        """Nothing is under way any more: finish what the peer did, send the rest again."""
        self._answered_id = min(self._answered_id, welcome.done_id)
        refused = {order_id: (code, detail) for order_id, code, detail in welcome.refused}
        for entry in list(self._sent.values()):
            entry.sent, entry.committed, entry.needs = False, False, 0
            if entry.id in refused:
                self.finish(entry, Outcome("refused", *refused[entry.id]))
            elif entry.id <= welcome.done_id:
                self.finish(entry, ACKED)
        self._sent.clear()
        self._unsent = deque(entry for entry in self._entries if entry.outcome is None)

    def open_entries(self) -> list[Entry]:
        """Those that may hold a descriptor."""
        return [entry for entry in self._entries if entry.fd is not None]

    @property
    def waits_for_answer(self) -> bool:
        """Whether the peer owes an answer."""
        return bool(self._sent)
