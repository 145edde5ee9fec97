"""The side of lazerd: listens for sensors, and yields their reports.

    receiver = Receiver(secret)
    await nursery.start(receiver.serve, host, port)
    async for arrived in receiver.reports: ...

Bounded everywhere: strangers and nodes by number, a greeting by time and size, silence by time,
reports by a channel in front of which every node waits with one report at most.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import trio

from lazerd.sensor.errors import HandshakeFailed, ProtocolError, SensorError
from lazerd.sensor.fleet import Arrived
from lazerd.sensor.handshake import LazerdSide
from lazerd.sensor.messages import NONCE_BYTES, Received, Rejected, Report, Welcome
from lazerd.sensor.talk import Talk

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much the listener bears."""

    strangers: int = 64
    """Connections that have not proven the secret yet; further ones are closed at once."""
    nodes: int = 4096
    greeting_s: float = 5.0
    silence_s: float = 60.0
    """A node that says nothing for so long is gone; it connects again when it is back."""
    reports: int = 256


class Receiver:
    """Accepts sensors. `random_bytes` makes nonces."""

    def __init__(
        self,
        secret: bytes,
        limits: Limits = Limits(),
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._secret = secret
        self._limits = limits
        self._random_bytes = random_bytes
        self._strangers = 0
        self._nodes: dict[str, trio.CancelScope] = {}
        self._send, self.reports = trio.open_memory_channel[Arrived](limits.reports)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Nodes whose sensors are connected."""
        return tuple(self._nodes)

    async def serve(
        self,
        host: str | None,
        port: int,
        task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Listen until cancelled, once; `reports` ends then. Started with the port, which 0 leaves
        to the kernel. OSError when the address cannot be had."""
        listeners = await trio.open_tcp_listeners(port, host=host)
        port = listeners[0].socket.getsockname()[1]
        async with self._send, trio.open_nursery() as nursery:
            await nursery.start(trio.serve_listeners, self.handle, listeners)
            task_status.started(port)

    async def handle(self, stream: trio.abc.Stream) -> None:
        """One connection, to its end. Nothing that the other side does is raised."""
        async with stream:
            if self._strangers >= self._limits.strangers:
                return
            try:
                await self._converse(Talk(stream))
            except SensorError as error:
                level = logging.WARNING if isinstance(error, HandshakeFailed) else logging.INFO
                log.log(level, "a sensor's connection ends: %s", error)
            except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
                log.debug("a sensor's connection broke")

    async def _converse(self, talk: Talk) -> None:
        node = await self._greet(talk)
        async with self._connected(node):
            await talk.send(Welcome())
            await self._take_reports(talk, node)

    async def _greet(self, talk: Talk) -> str:
        side = LazerdSide(self._random_bytes(NONCE_BYTES), self._secret)
        self._strangers += 1
        try:
            with trio.fail_after(self._limits.greeting_s):
                while side.state != "open":
                    answer = side.handle(await talk.receive())
                    if answer is not None:
                        await talk.send(answer)
        except SensorError as error:
            await _reject(talk, str(error))
            raise
        finally:
            self._strangers -= 1
        talk.seal(side.keys())
        if side.node not in self._nodes and len(self._nodes) >= self._limits.nodes:
            await _reject(talk, "there are too many sensors")
            raise SensorError(f"{side.node} is one sensor too many ({self._limits.nodes})")
        return side.node

    @asynccontextmanager
    async def _connected(self, node: str) -> AsyncIterator[None]:
        """A node that connects again takes the place of its earlier connection, which is dead."""
        if (earlier := self._nodes.get(node)) is not None:
            earlier.cancel()
        with trio.CancelScope() as scope:
            self._nodes[node] = scope
            log.info("the sensor of %s is connected", node)
            try:
                yield
            finally:
                if self._nodes.get(node) is scope:
                    del self._nodes[node]

    async def _take_reports(self, talk: Talk, node: str) -> None:
        seq, after_s = 0, trio.current_time()
        while True:
            with trio.fail_after(self._limits.silence_s):
                message = await talk.receive()
            seq += 1
            if not isinstance(message, Report) or message.seq != seq:
                raise ProtocolError(f"{node}: {type(message).__name__} instead of report {seq}")
            await self._send.send(Arrived(node, message.reading, after_s, trio.current_time()))
            after_s = trio.current_time()
            with trio.fail_after(self._limits.silence_s):
                await talk.send(Received(seq))


async def _reject(talk: Talk, detail: str) -> None:
    """Say why, as far as the other side still listens."""
    with suppress(trio.BrokenResourceError, SensorError), trio.move_on_after(1.0):
        await talk.send(Rejected(detail[:500]))
