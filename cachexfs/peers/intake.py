"""The orders of one connection, on their way into the store. Synchronous; runs in a thread.

Offers are opened and chunks are written as they come. `_line` keeps the orders in the order of
arrival; an order leaves it (`ready`) when nothing before it waits for chunks. An offer takes its
place when it arrives, so a file that is sent again keeps its place before later orders.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import zstandard

from cachexfs.durability.checksum import CHUNK_BYTES, chunk_count
from cachexfs.peers import messages as m
from cachexfs.peers.batch import Put, Step
from cachexfs.peers.draft import Draft
from cachexfs.peers.part import Part
from cachexfs.peers.refusal import Refusal
from cachexfs.peers.replicas import MAX_FILE_BYTES, Change, check_change
from cachexfs.peers.store import Store, disk_errors
from cachexfs.peers.wire import RemoteProtocolError

MAX_OPEN_OFFERS = 256
"""Descriptors that one connection may hold; an honest sender has `line.WINDOW_ORDERS`."""

MAX_DRAFTS = 64
"""The same for what is sent ahead; an honest sender has `ahead.MAX_DRAFTS`."""

MAX_LINE = 256
"""Orders that wait for an earlier one's content; an honest sender has `line.WINDOW_ORDERS`."""

log = logging.getLogger(__name__)


class Chunk(NamedTuple):
    """A chunk as it arrived: its frame, its payload, and the buffer that the payload lies in."""

    data: m.Data | m.Ahead
    payload: memoryview
    buffer: bytearray


Item = m.Offer | Chunk | m.Scrap | m.Commit | m.Withdraw | Change


class Taken(NamedTuple):
    """What comes of some items: questions back to the sender, and orders that can be applied."""

    needs: list[m.Need]
    ready: list[Step]


@dataclass
class _Place:
    """An order's place in the line; `order` is None while its content is not whole."""

    id: int
    order: Put | Change | Refusal | None
    replica: m.Replica | None = None
    part: Part | None = None
    withdrawn: bool = False
    bad_chunks: set[int] = field(default_factory=set)


class Intake:
    """`session` and `node` are the connection's, as proven in the handshake."""

    def __init__(self, store: Store, session: bytes, node: str) -> None:
        self._store = store
        self._session = session
        self._node = node
        self._line: deque[_Place] = deque()
        self._offers: dict[int, _Place] = {}
        self._parts: set[Part] = set()
        self._drafts: dict[int, Draft | None] = {}
        self._last_id = 0
        self._last_draft = 0

    def take(self, items: Sequence[Item]) -> Taken:
        """Work off what arrived. Raises `RemoteProtocolError`."""
        needs = [need for item in items if (need := self._one(item)) is not None]
        return Taken(needs, self._leave())

    def close(self) -> None:
        """The connection is gone, no group is being applied: keep what arrived for the next.

        Drafts go: without their sender's memory of them they are worth nothing.
        """
        for number in list(self._drafts):
            self._scrap(number)
        for part in self._parts:
            if part.open:
                self._store.abandon(part)
        self._parts.clear()

    def _one(self, item: Item) -> m.Need | None:
        match item:
            case m.Offer():
                return self._offer(item)
            case Chunk(data):
                if isinstance(data, m.Data):
                    self._write(item, data)
                else:
                    self._write_ahead(item, data)
            case m.Scrap():
                self._scrap(item.draft)
            case m.Commit():
                return self._commit(item.id)
            case m.Withdraw():
                self._withdraw(item.id)
            case change:
                self._queue(_Place(change.id, _checked(change)))
        return None

    def _queue(self, place: _Place) -> None:
        if place.id <= self._last_id:
            raise RemoteProtocolError(f"order {place.id} comes after order {self._last_id}")
        if len(self._line) >= MAX_LINE:
            raise RemoteProtocolError(f"more than {MAX_LINE} orders at a time")
        self._last_id = place.id
        self._line.append(place)

    def _offer(self, offer: m.Offer) -> m.Need | None:
        if len(self._offers) >= MAX_OPEN_OFFERS:
            raise RemoteProtocolError(f"more than {MAX_OPEN_OFFERS} files at a time")
        place = _Place(offer.id, None, offer.replica)
        self._queue(place)
        draft = self._drafts.pop(offer.draft, None)
        try:
            place.part = self._store.offer(offer.replica, self._session, draft)
        except Refusal as refusal:
            place.order, place.replica = refusal, None
            return None
        finally:
            if draft is not None:
                self._store.scrap(draft)
        self._offers[offer.id] = place
        self._keep(place.part)
        return m.Need(offer.id, place.part.missing_ranges() if place.part else [])

    def _keep(self, part: Part | None) -> None:
        # Also a part that has left the line is ours, until it is sealed by `Store.apply`.
        self._parts = {part for part in self._parts if part.open}
        if part is not None:
            self._parts.add(part)

    def _known(self, order_id: int) -> _Place | None:
        """The open offer of this id; None where the offer was refused and more was under way."""
        if order_id > self._last_id:
            raise RemoteProtocolError(f"{order_id} was not offered")
        return self._offers.get(order_id)

    def _write_ahead(self, chunk: Chunk, ahead: m.Ahead) -> None:
        if ahead.draft not in self._drafts:
            self._begin_draft(ahead.draft)
        if ahead.raw_bytes != CHUNK_BYTES or ahead.index >= MAX_FILE_BYTES // CHUNK_BYTES:
            raise RemoteProtocolError(f"chunk {ahead.index} of {ahead.raw_bytes} bytes sent ahead")
        draft = self._drafts[ahead.draft]
        content = _unpacked(chunk, CHUNK_BYTES)
        if draft is None or len(content) != CHUNK_BYTES:
            return
        if not self._store.keep_ahead(draft, ahead.index, content):
            self._drafts[ahead.draft] = None

    def _begin_draft(self, number: int) -> None:
        if number <= self._last_draft:
            raise RemoteProtocolError(f"draft {number} comes after draft {self._last_draft}")
        if len(self._drafts) >= MAX_DRAFTS:
            raise RemoteProtocolError(f"more than {MAX_DRAFTS} drafts at a time")
        self._last_draft = number
        self._drafts[number] = self._store.draft()

    def _scrap(self, number: int) -> None:
        if (draft := self._drafts.pop(number, None)) is not None:
            self._store.scrap(draft)

    def _write(self, chunk: Chunk, data: m.Data) -> None:
        place = self._known(data.id)
        if place is None or place.part is None or place.replica is None:
            return
        length = _expected_length(place.replica, data)
        if data.index not in place.part.missing:
            return
        try:
            with disk_errors():
                right = place.part.write(data.index, _unpacked(chunk, length))
        except Refusal as refusal:
            self._fail(place, refusal)
            return
        if not right:
            place.bad_chunks.add(data.index)

    def _fail(self, place: _Place, refusal: Refusal) -> None:
        if place.part is not None:
            self._store.abandon(place.part)
        place.part, place.order = None, refusal
        self._offers.pop(place.id, None)

    def _commit(self, order_id: int) -> m.Need | None:
        place = self._known(order_id)
        if place is None or place.replica is None:
            return None
        if place.part is not None and place.part.missing:
            self._report(place)
            return m.Need(order_id, place.part.missing_ranges())
        place.order = Put(place.replica, place.part)
        self._offers.pop(order_id)
        return None

    def _report(self, place: _Place) -> None:
        for index in sorted(place.bad_chunks):
            path = place.replica.path if place.replica else b""
            log.warning("chunk %d of %r from %s is damaged: asked again", index, path, self._node)
        place.bad_chunks.clear()

    def _withdraw(self, order_id: int) -> None:
        place = self._known(order_id)
        if place is None:
            return
        place.withdrawn = True
        self._offers.pop(order_id)
        if place.part is not None:
            self._store.withdraw(place.part)
            place.part = None

    def _leave(self) -> list[Step]:
        ready = []
        while self._line and (self._line[0].order is not None or self._line[0].withdrawn):
            place = self._line.popleft()
            if place.order is not None:
                ready.append(Step(self._session, place.id, place.order))
        return ready


def _checked(change: Change) -> Change | Refusal:
    """What takes the change's place in the line: nothing absurd waits there, or takes memory."""
    try:
        check_change(change)
    except Refusal as refusal:
        return refusal
    return change


def _expected_length(replica: m.Replica, data: m.Data) -> int:
    if data.index >= chunk_count(replica.size_bytes):
        raise RemoteProtocolError(f"chunk {data.index} of a file of {replica.size_bytes} bytes")
    length = min(CHUNK_BYTES, replica.size_bytes - data.index * CHUNK_BYTES)
    if data.raw_bytes != length:
        raise RemoteProtocolError(f"chunk {data.index} has {length} bytes, not {data.raw_bytes}")
    return length


def _unpacked(chunk: Chunk, length: int) -> memoryview:
    """The chunk's bytes. What does not unpack comes back as it is, and fails its checksum."""
    return chunk.payload if len(chunk.payload) == length else unpack(chunk.payload, length)


def unpack(payload: memoryview, length: int) -> memoryview:
    """Decompress at most `length` bytes, whatever the payload says of itself; b"" when damaged."""
    buffer = bytearray(length)
    try:
        with zstandard.ZstdDecompressor().stream_reader(payload) as reader:
            done = 0
            while done < length and (count := reader.readinto(memoryview(buffer)[done:])):
                done += count
    except zstandard.ZstdError:
        return memoryview(b"")
    return memoryview(buffer)[:done]
