"""Who may be connected at a time, and who is a stranger before the secret is proven.

A stranger costs a descriptor and a few kilobytes, for `greeting.HANDSHAKE_S` at most. When there
are too many, the one that has been here longest has to go: who knows the secret needs
milliseconds, so strangers cannot keep members out, however many they are.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import trio

from cachexfs.peers.greeting import HANDSHAKE_S, Identity, accept
from cachexfs.peers.handshake import HandshakeFailed, Listener
from cachexfs.peers.messages import Refused
from cachexfs.peers.refusal import Refusal
from cachexfs.peers.stream import BROKEN, Disconnected, FrameStream
from cachexfs.peers.wire import LocalProtocolError, RemoteProtocolError

MAX_STRANGERS = 512
"""Members that all come back at once are strangers too, for as long as the machine is busy."""
MAX_OF_NODE = 128
"""A node has six for each of its mounts: orders, questions, and `fetching.AT_ONCE` reads."""
LINES, LINES_EVERY_S = 20, 60.0
"""So many lines of log about strangers, in so long."""

ENDED = (*BROKEN, Disconnected, RemoteProtocolError, LocalProtocolError, trio.TooSlowError)
log = logging.getLogger(__name__)


@dataclass
class Admission:
    """`max_members`: connections of members, all together."""

    max_members: int
    _strangers: dict[trio.CancelScope, None] = field(default_factory=dict)
    _members: Counter[str] = field(default_factory=Counter)
    _lines: int = 0
    _lines_since_s: float = 0.0

    async def greet(
        self, transport: trio.abc.Stream, identity: Identity
    ) -> tuple[FrameStream, Listener] | None:
        """Let the other side prove itself; None when it did not, and the log says why."""
        with self._stranger() as scope:
            try:
                with scope:
                    return await accept(transport, identity)
                self._say(transport, "too many strangers: this one has been here longest")
            except (*ENDED, HandshakeFailed) as error:
                self._say(transport, sentence(error))
            except Exception:
                log.exception("a connection ended in the handshake because of a defect")
        return None

    @contextmanager
    def member(self, node: str) -> Iterator[None]:
        """A connection of `node`, while the block runs. Raises `Refusal` (Busy)."""
        if self._members[node] >= MAX_OF_NODE:
            raise Refusal("Busy", f"{node} has {MAX_OF_NODE} connections open here", retry=True)
        if self._members.total() >= self.max_members:
            raise Refusal("Busy", f"{self.max_members} connections are open here", retry=True)
        self._members[node] += 1
        try:
            yield
        finally:
            self._members[node] -= 1
            self._members += Counter()  # forgets those that have none

    @contextmanager
    def _stranger(self) -> Iterator[trio.CancelScope]:
        scope = trio.CancelScope()
        self._strangers[scope] = None
        if len(self._strangers) > MAX_STRANGERS:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.cancel()
        try:
            yield scope
        finally:
            self._strangers.pop(scope, None)

    def _say(self, transport: trio.abc.Stream, why: str) -> None:
        now_s = trio.current_time()
        if now_s >= self._lines_since_s + LINES_EVERY_S:
            self._lines, self._lines_since_s = 0, now_s
        self._lines += 1
        if self._lines <= LINES:
            log.warning("a connection from %s ended in the handshake: %s", _host(transport), why)
        elif self._lines == LINES + 1:
            log.warning("more of them, of which nothing is said for a minute")


def _host(transport: trio.abc.Stream) -> str:
    if not isinstance(transport, trio.SocketStream):
        return "here"
    try:
        return str(transport.socket.getpeername()[0])
    except OSError:
        return "somebody who has left"


async def turn_away(stream: FrameStream, refusal: Refusal) -> None:
    """Say instead of a welcome why there is none. Raises nothing."""
    with suppress(*ENDED), trio.move_on_after(HANDSHAKE_S):
        await stream.send(Refused(0, refusal.code, refusal.detail, refusal.retry))


def sentence(error: BaseException) -> str:
    """What ended a connection."""
    if isinstance(error, trio.TooSlowError):
        return str(error) or "it was too slow"
    if isinstance(error, Disconnected):
        return "it closed the connection"
    return str(error) or type(error).__name__
