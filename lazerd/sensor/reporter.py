"""The side of the node: connects to lazerd, looks, reports, and connects again when that breaks.

A report is never kept for later: what lazerd gets was looked at just now.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import trio

from lazerd.sensor.errors import ProtocolError, SensorError
from lazerd.sensor.handshake import SensorSide
from lazerd.sensor.messages import NONCE_BYTES, Received, Report
from lazerd.sensor.reading import Reading
from lazerd.sensor.talk import Talk

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """Times of a reporter, in seconds."""

    interval_s: float = 2.0
    """Between the beginnings of two looks."""
    answer_s: float = 20.0
    """How long lazerd may take to answer; longer than a busy one needs."""
    first_wait_s: float = 0.5
    longest_wait_s: float = 30.0


class Reporter:
    """Reports the looks of `read`, which may block, as those of `node`."""

    def __init__(
        self,
        host: str,
        port: int,
        node: str,
        secret: bytes,
        read: Callable[[], Reading],
        pace: Pace = Pace(),
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._host, self._port = host, port
        self._node = node
        self._secret = secret
        self._read = read
        self._pace = pace
        self._random_bytes = random_bytes
        self._received = 0

    async def run(self) -> None:
        """Until cancelled. What goes wrong is logged once, until something else does."""
        waits, said = _waits(self._pace), ""
        while True:
            before = self._received
            why = await self._one_connection()
            if self._received > before:
                waits = _waits(self._pace)
            if why != said:
                log.warning("%s:%s: %s; trying again", self._host, self._port, why)
                said = why
            # Spread, so that a thousand nodes do not come back in the same instant.
            await trio.sleep(next(waits) * random.uniform(0.5, 1.0))

    async def _one_connection(self) -> str:
        """Why it ended."""
        try:
            with trio.fail_after(self._pace.answer_s):
                stream = await trio.open_tcp_stream(self._host, self._port)
            async with stream:
                await self._report(Talk(stream))
        except SensorError as error:
            return str(error)
        except trio.TooSlowError:
            return f"lazerd has not answered for {self._pace.answer_s:g} s"
        except (OSError, trio.BrokenResourceError) as error:
            return f"lazerd cannot be reached: {error}"
        raise AssertionError("unreachable: reporting does not end by itself")

    async def _report(self, talk: Talk) -> None:
        await self._greet(talk)
        log.info("%s:%s: connected", self._host, self._port)
        seq = 0
        while True:
            next_s = trio.current_time() + self._pace.interval_s
            reading = await trio.to_thread.run_sync(self._read, abandon_on_cancel=True)
            seq += 1
            with trio.fail_after(self._pace.answer_s):
                await talk.send(Report(seq, reading))
                answer = await talk.receive()
            if answer != Received(seq):
                raise ProtocolError(f"{type(answer).__name__} instead of an answer to {seq}")
            self._received += 1
            await trio.sleep_until(next_s)

    async def _greet(self, talk: Talk) -> None:
        side = SensorSide(self._node, self._random_bytes(NONCE_BYTES), self._secret)
        with trio.fail_after(self._pace.answer_s):
            await talk.send(side.hello())
            while side.state != "open":
                answer = side.handle(await talk.receive())
                if answer is not None:
                    await talk.send(answer)
                    talk.seal(side.keys())


def _waits(pace: Pace) -> Iterator[float]:
    wait_s = pace.first_wait_s
    while True:
        yield wait_s
        wait_s = min(2 * wait_s, pace.longest_wait_s)
