"""The owner's side of one partner: connect, send the orders in line, connect again for ever.

Whatever ends a connection (a broken cable, a peer without room, a slow disk), the answer is the
same: wait a little, connect again, ask the peer how far it came, go on from there. So there is one
way through, and it is walked often.
"""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Awaitable, Callable
from typing import Literal

import trio

from cachexfs.peers import messages as m
from cachexfs.peers.ahead import Ahead
from cachexfs.peers.greeting import Identity, connect
from cachexfs.peers.handshake import SESSION_BYTES, HandshakeFailed
from cachexfs.peers.line import Line
from cachexfs.peers.orders import Order, Outcome
from cachexfs.peers.stream import BROKEN, Disconnected, FrameStream
from cachexfs.peers.transfer import Compression, PeerProblem, Transfer, close_content
from cachexfs.peers.wire import LocalProtocolError, RemoteProtocolError

RETRY_FIRST_S = 0.05
RETRY_MAX_S = 2.0
PING_S = 2.0
"""Silence after which the peer is asked whether it is there."""
ANSWER_S = 10.0
"""Nothing received, and nothing sent but pings, for so long: the link is down."""
DOWN_AFTER_S = 3.0
"""Without a connection for so long a partner is called down; before that, shaky."""
READERS = 2
"""Threads that read and compress content which cannot go by sendfile."""

State = Literal["up", "shaky", "down"]
_ENDED = (
    *BROKEN, Disconnected, RemoteProtocolError, LocalProtocolError, HandshakeFailed, PeerProblem,
    trio.TooSlowError,
)  # fmt: skip


class PeerLink:
    """One partner. `run` is a task of whoever composes; all else is called in the event loop.

    `on_done(order, outcome)` is called once for every order, in the order of `submit`.
    `on_forgotten()` is called when the peer comes back without what it had acknowledged (its store
    was lost): whoever counted on it as a replica must not do so any more. `on_time(at_ns)` is told
    how far the peer's clock is.
    """

    def __init__(
        self,
        name: str,
        address: str,
        node: str,
        secret: bytes,
        *,
        on_done: Callable[[Order, Outcome], None],
        on_forgotten: Callable[[], None] = lambda: None,
        on_time: Callable[[int], None] = lambda at_ns: None,
        ssl_context: ssl.SSLContext | None = None,
        compression: Compression = "off",
    ) -> None:
        self.name = name
        self.address = address
        self.last_error: str | None = None
        self.free_bytes = 0
        self.owners = 0
        self._identity = Identity(node, secret, ssl_context)
        self._session = secrets.token_bytes(SESSION_BYTES)
        self._on_done = on_done
        self._on_forgotten = on_forgotten
        self._on_time = on_time
        self._compression = compression
        self._limiter = trio.CapacityLimiter(READERS)
        self._line = Line()
        self.ahead = Ahead()
        self._transfer: Transfer | None = None
        self._lost_at: float | None = None
        self._retry_s = RETRY_FIRST_S

    @property
    def behind_bytes(self) -> int:
        """Bytes of content that were submitted and have no outcome yet."""
        return self._line.behind_bytes

    @property
    def state(self) -> State:
        """ "up": connected, no problem; "shaky": connected with a problem, or just lost."""
        if self._transfer is not None:
            return "shaky" if self.last_error else "up"
        lost_at = self._lost_at
        just_lost = lost_at is not None and trio.current_time() - lost_at < DOWN_AFTER_S
        return "shaky" if just_lost else "down"

    def submit(self, order: Order) -> None:
        """Append an order; returns at once."""
        self._line.submit(order)
        self._wake()

    def send_ahead(
        self, key: int, first: int, complete: int, open_content: Callable[[], int | None]
    ) -> None:
        """Chunks [first, complete) of a file may be sent when no order waits; returns at once."""
        if self.ahead.offer(key, first, complete, open_content):
            self._wake()

    def scrap(self, key: int) -> None:
        """The file whose chunks were sent ahead will not be offered."""
        self.ahead.drop(key)
        self._wake()

    def _wake(self) -> None:
        if self._transfer is not None:
            self._transfer.wake()

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                await self._one_connection()
                await trio.sleep(self._retry_s)
                self._retry_s = min(2 * self._retry_s, RETRY_MAX_S)
        finally:
            self._close_contents()

    async def _one_connection(self) -> None:
        try:
            stream, welcome, _ = await connect(
                self.address, self._identity, self._session, self.name
            )
        except _ENDED as error:
            self.last_error = self._sentence(error)
            return
        try:
            await self._connected(stream, welcome)
        finally:
            self._disconnected()
            await stream.aclose()

    async def _connected(self, stream: FrameStream, welcome: m.Welcome) -> None:
        self.free_bytes, self.owners = welcome.free_bytes, welcome.owners
        self._on_time(welcome.now_ns)
        self._close_contents()
        if self._line.forgotten_by(welcome):
            self._on_forgotten()
        self._line.reconnected(welcome)
        self.ahead.reconnected()
        self._report()
        transfer = Transfer(
            stream, self._line, self.ahead, self._progress, self._compression, self._limiter
        )
        self._transfer = transfer
        if not self._line.waits_for_answer and not self._line.behind_bytes:
            self._healthy()
        async with trio.open_nursery() as nursery:
            stop = nursery.cancel_scope.cancel
            nursery.start_soon(self._guarded, transfer.transmit, stop)
            nursery.start_soon(self._guarded, lambda: self._receive(stream, transfer), stop)
            nursery.start_soon(self._guarded, lambda: self._ask_when_silent(stream), stop)
            nursery.start_soon(self._guarded, lambda: self._watch(stream), stop)

    def _disconnected(self) -> None:
        if self._transfer is not None:
            self._transfer = None
            self._lost_at = trio.current_time()

    async def _guarded(self, task: Callable[[], Awaitable[None]], stop: Callable[[], None]) -> None:
        """The first task that fails ends the connection, and its reason is kept."""
        try:
            await task()
        except _ENDED as error:
            self.last_error = self._sentence(error)
            stop()

    async def _receive(self, stream: FrameStream, transfer: Transfer) -> None:
        while True:
            message, payload_bytes = await stream.receive()
            if payload_bytes:
                raise RemoteProtocolError("a chunk that nobody asked for")
            if isinstance(message, m.Pong):
                self.free_bytes, self.owners = message.free_bytes, message.owners
                self._on_time(message.now_ns)
                if not self._line.waits_for_answer:
                    self._healthy()
            else:
                transfer.handle(message)

    async def _ask_when_silent(self, stream: FrameStream) -> None:
        while True:
            silent_s = trio.current_time() - stream.received_at
            if silent_s >= PING_S:
                await stream.probe(m.Ping(0))
            await trio.sleep(PING_S if silent_s >= PING_S else PING_S - silent_s)

    async def _watch(self, stream: FrameStream) -> None:
        # Apart from the pings: where nothing can be sent, sending a ping waits too.
        while True:
            left_s = stream.progress_at + ANSWER_S - trio.current_time()
            if left_s <= 0:
                raise trio.TooSlowError
            await trio.sleep(left_s)

    def _progress(self) -> None:
        self._healthy()
        self._report()

    def _healthy(self) -> None:
        self.last_error = None
        self._retry_s = RETRY_FIRST_S

    def _report(self) -> None:
        for order, outcome in self._line.settle():
            self._on_done(order, outcome)

    def _close_contents(self) -> None:
        for entry in self._line.open_entries():
            close_content(entry)

    def _sentence(self, error: BaseException) -> str:
        what = str(error) or type(error).__name__
        if isinstance(error, Disconnected):
            what = "it closed the connection"
        elif isinstance(error, trio.TooSlowError):
            what = "no answer in time"
        return f"{self.name} ({self.address}): {what}"
