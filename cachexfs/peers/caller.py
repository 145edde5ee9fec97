"""Short questions to one member, many at a time over one connection that is kept.

A member that does not answer in time is called dead at once: nobody else waits for it. It is tried
again behind the scenes, and `on_back` is called when it answers.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from cachexfs.config import Member
from cachexfs.peers import messages as m
from cachexfs.peers.greeting import Identity, connect
from cachexfs.peers.handshake import SESSION_BYTES, HandshakeFailed
from cachexfs.peers.stream import BROKEN, Disconnected, FrameStream
from cachexfs.peers.waking import in_time
from cachexfs.peers.wire import ProtocolError

RETRY_FIRST_S, RETRY_MAX_S = 0.2, 5.0
IDLE_S = 25.0
"""A connection that nobody used for so long is closed: before `server.IDLE_S` closes it."""

_ENDED = (*BROKEN, Disconnected, ProtocolError, HandshakeFailed, trio.TooSlowError)
log = logging.getLogger(__name__)


class CallFailed(Exception):
    """The member does not answer, or answers nonsense."""


@dataclass
class _Waiting:
    done: trio.Event = field(default_factory=trio.Event)
    answer: m.Message | None = None


class Caller:
    """One member. `nursery` runs what goes on behind the scenes."""

    def __init__(
        self,
        member: Member,
        identity: Identity,
        nursery: trio.Nursery,
        on_push: Callable[[m.Message], None] = lambda message: None,
        on_back: Callable[[], None] = lambda: None,
        on_time: Callable[[int], None] = lambda at_ns: None,
    ) -> None:
        self.member = member
        self.sent = 0
        """Questions sent so far."""
        self._identity = identity
        self._nursery = nursery
        self._on_push = on_push
        self._on_back = on_back
        self._on_time = on_time
        self._session = secrets.token_bytes(SESSION_BYTES)
        self._stream: FrameStream | None = None
        self._connecting = trio.Lock()
        self._waiting: dict[int, _Waiting] = {}
        self._last_id = 0
        self._used_at_s = trio.current_time()
        self._reviving: trio.CancelScope | None = None
        self.is_dead = False

    async def ask(self, make: Callable[[int], m.Message], within_s: float) -> m.Message:
        """The answer to the message that `make` makes of a number. Raises `CallFailed`."""
        if self.is_dead:
            raise CallFailed(f"{self.member.name} does not answer")
        try:
            return await self._ask_twice(make, within_s)
        except _ENDED as error:
            self._die(str(error) or type(error).__name__)
            raise CallFailed(f"{self.member.name} does not answer") from None

    def close(self) -> None:
        """Not a member any more."""
        self.is_dead = True
        if self._reviving is not None:
            self._reviving.cancel()
        self._drop()

    async def _ask_twice(self, make: Callable[[int], m.Message], within_s: float) -> m.Message:
        """Where a connection that was kept has ended, over a new one: the member may live, and not
        have heard of us for too long."""
        kept = self._stream
        try:
            return await self._ask(make, within_s)
        except trio.TooSlowError:
            raise
        except _ENDED:
            if kept is None or self.is_dead:
                raise
        if self._stream is kept:
            self._drop()
        return await self._ask(make, within_s)

    async def _ask(self, make: Callable[[int], m.Message], within_s: float) -> m.Message:
        """Each step may take `within_s`; of a member that is dead only one does."""
        stream = await in_time(self._connected, within_s)
        self._last_id += 1
        number, waiting = self._last_id, _Waiting()
        self._waiting[number] = waiting
        self._used_at_s = trio.current_time()
        self.sent += 1
        try:
            with trio.fail_after(within_s):
                await stream.send(make(number))
            await in_time(waiting.done.wait, within_s)
        finally:
            self._waiting.pop(number, None)
        if waiting.answer is None:
            raise Disconnected
        return waiting.answer

    async def _connected(self) -> FrameStream:
        async with self._connecting:
            if self._stream is None:
                stream, welcome, _ = await connect(
                    self.member.address, self._identity, self._session, self.member.name
                )
                self._on_time(welcome.now_ns)
                self._stream = stream
                self._nursery.start_soon(self._receive, stream)
            return self._stream

    async def _receive(self, stream: FrameStream) -> None:
        try:
            while self._stream is stream:
                with trio.move_on_after(IDLE_S):
                    message, payload_bytes = await stream.receive()
                    if payload_bytes:
                        raise Disconnected
                    self._take(message)
                    continue
                if trio.current_time() - self._used_at_s >= IDLE_S:
                    break
        except _ENDED:
            pass
        finally:
            if self._stream is stream:
                self._drop()
            with trio.CancelScope(shield=True):
                await stream.aclose()

    def _take(self, message: m.Message) -> None:
        self._on_time(getattr(message, "now_ns", 0))
        if isinstance(message, m.Superseded):
            self._on_push(message)
        elif (waiting := self._waiting.get(getattr(message, "id", -1))) is not None:
            waiting.answer = message
            waiting.done.set()

    def _drop(self) -> None:
        self._stream = None
        for waiting in self._waiting.values():
            waiting.done.set()

    def _die(self, why: str) -> None:
        if self._stream is not None:
            self._stream.abort()
        self._drop()
        if not self.is_dead:
            log.info("%s is not asked for a while: %s", self.member.name, why)
            self.is_dead = True
            self._nursery.start_soon(self._revive)

    async def _revive(self) -> None:
        pause_s = RETRY_FIRST_S
        with trio.CancelScope() as self._reviving:
            while True:
                await trio.sleep(pause_s)
                pause_s = min(2 * pause_s, RETRY_MAX_S)
                try:
                    await self._ask(m.Ping, RETRY_MAX_S)
                except _ENDED:
                    self._drop()
                    continue
                self.is_dead = False
                self._on_back()
                return
