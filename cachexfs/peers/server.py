"""The listening side: one connection is read, its orders carried out, its questions answered.

    _read   -> frames; a chunk's payload is received straight into one of two buffers
    _carry  -> a thread checks and writes what has arrived, while the next chunk is received
    _apply  -> orders that are complete go to the store as one group; answers in order
    _reply  -> questions, one at a time, beside the orders
    _push   -> what the other side did not ask for

The channels between them are bounded, so a slow disk holds back the sender and nothing piles up.
A connection that breaks the protocol is closed, with one line in the log, and touches no other.
"""

from __future__ import annotations

import contextlib
import logging
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import trio

from cachexfs.durability.checksum import CHUNK_BYTES
from cachexfs.peers import messages as m
from cachexfs.peers.admission import ENDED, Admission, sentence, turn_away
from cachexfs.peers.answers import Question, answer
from cachexfs.peers.batch import Step
from cachexfs.peers.greeting import Identity
from cachexfs.peers.group import GroupCommit
from cachexfs.peers.handshake import Listener
from cachexfs.peers.home import REMEMBERED_NODES, Home
from cachexfs.peers.intake import Chunk, Intake, Item
from cachexfs.peers.refusal import Refusal
from cachexfs.peers.store import Store
from cachexfs.peers.stream import BROKEN, Disconnected, FrameStream
from cachexfs.peers.wire import RemoteProtocolError

MAX_CONNECTIONS = 512
"""Two for each of 256 nodes; each costs two buffers of a chunk and some descriptors. How many of
them one node may have, and what strangers may, is said in `admission`."""
IDLE_S = 30.0
"""A sender pings every few seconds; who is silent for longer is gone."""
BUFFERS = 2
"""One is received into while the other is written."""
SMALL_BYTES = 256 << 10
"""A payload up to this gets memory of its own, so that many small files do not wait in turn."""
QUEUE = 64
"""Frames between two stages."""

T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass
class PeerServer:
    """Serves `store`. Whoever composes calls `handle` for each connection (`serve_listeners`)."""

    store: Store
    node: str
    secret: bytes
    ssl_context: ssl.SSLContext | None = None
    home: Home = field(default_factory=Home)
    limiter: trio.CapacityLimiter = field(default_factory=lambda: trio.CapacityLimiter(8))
    heard: dict[str, float] = field(default_factory=dict)
    """When each owner was heard of last, on trio's clock."""
    owners: set[str] = field(default_factory=set)
    _sessions: dict[bytes, _Session] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.group = GroupCommit(self.store.apply, self.limiter)
        self.home.clock.heard(self.store.latest_ns)
        self._admission = Admission(MAX_CONNECTIONS)

    async def handle(self, transport: trio.abc.Stream) -> None:
        """Serve one connection to its end. Raises nothing of its own."""
        try:
            identity = Identity(self.node, self.secret, self.ssl_context)
            if (greeted := await self._admission.greet(transport, identity)) is not None:
                await self._converse(*greeted)
        finally:
            await trio.aclose_forcefully(transport)

    async def _converse(self, stream: FrameStream, side: Listener) -> None:
        try:
            with self._admission.member(side.other_node):
                async with self._only_of_session(side.session) as session:
                    conversation = _Conversation(self, stream, side.session, side.other_node)
                    with session.scope:
                        await conversation.run()
        except Refusal as refusal:
            await turn_away(stream, refusal)

    def _only_of_session(self, key: bytes) -> _Turn:
        return _Turn(self._sessions, key)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run what blocks in a thread of the store's."""
        return await trio.to_thread.run_sync(work, limiter=self.limiter)


class _Session:
    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.ended = trio.Event()


class _Turn:
    """One connection of a session at a time: a new one ends the old one, and waits for its end."""

    def __init__(self, sessions: dict[bytes, _Session], key: bytes) -> None:
        self._sessions = sessions
        self._key = key
        self._mine = _Session()

    async def __aenter__(self) -> _Session:
        while (old := self._sessions.get(self._key)) is not None:
            old.scope.cancel()
            await old.ended.wait()
        self._sessions[self._key] = self._mine
        return self._mine

    async def __aexit__(self, *_: object) -> None:
        del self._sessions[self._key]
        self._mine.ended.set()


class _Conversation:
    """One connection after the handshake. The first task that ends for whatever reason ends all."""

    def __init__(self, server: PeerServer, stream: FrameStream, session: bytes, node: str) -> None:
        self._server = server
        self._stream = stream
        self._session = session
        self._node = node
        self._intake = Intake(server.store, session, node)
        self._to_carry, self._carried = trio.open_memory_channel[Item](QUEUE)
        self._to_apply, self._applied = trio.open_memory_channel[list[Step]](QUEUE)
        self._to_reply, self._replied = trio.open_memory_channel[Question](QUEUE)
        self._give_back, self._free = trio.open_memory_channel[bytearray](BUFFERS)
        self._to_push, self._pushed = trio.open_memory_channel[m.Message](QUEUE)
        self._buffers_made = 0
        self._scope = trio.CancelScope()

    async def run(self) -> None:
        """Until the other side leaves, breaks the protocol or is silent for too long."""
        try:
            await self._welcome()
            async with trio.open_nursery() as nursery:
                self._scope = nursery.cancel_scope
                for task in (
                    self._read, self._carry, self._apply, self._reply, self._push, self._watch,
                ):  # fmt: skip
                    nursery.start_soon(self._guarded, task)
        except ENDED as error:
            self._report(error)
        finally:
            self._server.home.left(self._node, self._tell)
            with trio.CancelScope(shield=True):
                await self._server.in_thread(self._intake.close)

    async def _welcome(self) -> None:
        store = self._server.store
        done = await self._server.in_thread(lambda: store.progress(self._session))
        free_bytes = await self._free_bytes()
        owners = len(self._server.owners)
        now_ns = self._server.home.clock.now_ns()
        await self._stream.send(m.Welcome(free_bytes, done.done_id, done.refused, owners, now_ns))

    async def _free_bytes(self) -> int:
        store = self._server.store
        return await self._server.in_thread(lambda: store.free_bytes)

    async def _guarded(self, task: Callable[[], Awaitable[None]]) -> None:
        try:
            await task()
        except ENDED as error:
            self._report(error)
        except Exception:
            log.exception("the connection of %s ends because of a defect", self._node)
        self._scope.cancel()

    def _report(self, error: BaseException) -> None:
        level = logging.INFO if isinstance(error, (Disconnected, *BROKEN)) else logging.WARNING
        log.log(level, "the connection of %s ended: %s", self._node, sentence(error))

    async def _read(self) -> None:
        while True:
            message, payload_bytes = await self._stream.receive()
            match message:
                case m.Data() | m.Ahead():
                    self._heard()
                    await self._to_carry.send(await self._chunk(message, payload_bytes))
                case m.Ping():
                    self._heard()
                    free_bytes, owners = await self._free_bytes(), len(self._server.owners)
                    now_ns = self._server.home.clock.now_ns()
                    await self._stream.send(m.Pong(message.id, free_bytes, owners, now_ns))
                case m.Register() | m.Forget() | m.Missed() | m.Find() | m.FindAll():
                    home = self._server.home
                    await self._stream.send(home.answer(message, self._node, self._tell))
                case m.List() | m.Fetch() | m.Volumes():
                    await self._to_reply.send(message)
                case (
                    m.Offer() | m.Scrap() | m.Commit() | m.Withdraw() | m.Rename()
                    | m.Unlink() | m.Link() | m.Attrs() | m.Durable()
                ):  # fmt: skip
                    await self._to_intake(message)
                case _:
                    raise RemoteProtocolError(f"{type(message).__name__} makes no sense here")

    async def _to_intake(self, message: Item) -> None:
        self._heard()
        if isinstance(message, m.Offer):
            self._server.owners.add(self._node)
            self._server.home.clock.heard(message.replica.closed_at_ns)
        elif isinstance(message, m.Unlink):
            self._server.home.clock.heard(message.at_ns)
        await self._to_carry.send(message)

    async def _chunk(self, data: m.Data | m.Ahead, payload_bytes: int) -> Chunk:
        buffer = await self._buffer(payload_bytes)
        view = memoryview(buffer)[:payload_bytes]
        await self._stream.payload_into(view)
        return Chunk(data, view, buffer)

    async def _buffer(self, payload_bytes: int) -> bytearray:
        if payload_bytes <= SMALL_BYTES:
            return bytearray(payload_bytes)
        if self._buffers_made < BUFFERS:
            self._buffers_made += 1
            return bytearray(CHUNK_BYTES)
        return await self._free.receive()

    async def _carry(self) -> None:
        while True:
            items = await _all_waiting(self._carried)
            taken = await self._server.in_thread(partial(self._intake.take, items))
            self._recycle(items)
            for need in taken.needs:
                await self._stream.send(need)
            if taken.ready:
                await self._to_apply.send(taken.ready)

    def _recycle(self, items: list[Item]) -> None:
        for item in items:
            if isinstance(item, Chunk) and len(item.buffer) == CHUNK_BYTES:
                self._give_back.send_nowait(item.buffer)

    async def _apply(self) -> None:
        while True:
            steps = [step for group in await _all_waiting(self._applied) for step in group]
            outcomes = await self._server.group.apply(steps)
            answers = [
                m.Ack(step.id)
                if refusal is None
                else m.Refused(step.id, refusal.code, refusal.detail, refusal.retry)
                for step, refusal in zip(steps, outcomes, strict=True)
            ]
            await self._stream.send_all([(message, b"") for message in answers])
            if any(refusal is not None and refusal.retry for refusal in outcomes):
                return

    async def _reply(self) -> None:
        while True:
            question = await self._replied.receive()
            await answer(question, self._server.store, self._stream, self._server.in_thread)

    def _heard(self) -> None:
        heard = self._server.heard
        heard[self._node] = trio.current_time()
        if len(heard) > REMEMBERED_NODES:
            del heard[min(heard, key=lambda node: heard[node])]

    def _tell(self, message: m.Message) -> None:
        """Say something that was not asked for; who does not listen is told when it asks again."""
        with contextlib.suppress(trio.WouldBlock):
            self._to_push.send_nowait(message)

    async def _push(self) -> None:
        async for message in self._pushed:
            await self._stream.send(message)

    async def _watch(self) -> None:
        while True:
            left_s = self._stream.progress_at + IDLE_S - trio.current_time()
            if left_s <= 0:
                raise trio.TooSlowError(f"silent for {IDLE_S:.0f} s")
            await trio.sleep(left_s)


async def _all_waiting(channel: trio.MemoryReceiveChannel[T]) -> list[T]:
    """The next item and whatever else has arrived by now: one thread hop serves them all."""
    items = [await channel.receive()]
    try:
        while True:
            items.append(channel.receive_nowait())
    except trio.WouldBlock:
        return items
