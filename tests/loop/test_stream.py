"""A frame whose payload goes from a file to the socket, in a thread."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
import trio

from cachexfs.durability.checksum import CHUNK_BYTES
from cachexfs.peers import messages as m
from cachexfs.peers.stream import BROKEN, FrameStream
from cachexfs.peers.wire import Keys

pytestmark = pytest.mark.trio

CHUNKS = 16
"""More of them than two socket buffers hold."""


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[FrameStream, FrameStream]]:
    """Two ends of a TCP connection on loopback, greeted and sealed."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    async with listener:
        near = FrameStream(await trio.open_tcp_stream("127.0.0.1", port))
        far = FrameStream(await listener.accept())
    for end in (near, far):
        await end.greet()
        end.seal(Keys(b"k", b"k"))
    try:
        yield near, far
    finally:
        await near.aclose()
        await far.aclose()


async def send_much(end: FrameStream, fd: int) -> None:
    for index in range(CHUNKS):
        await end.send_file(m.Data(1, index, CHUNK_BYTES), fd, 0, CHUNK_BYTES)


@contextmanager
def content(data: bytes) -> Iterator[int]:
    with tempfile.TemporaryFile(buffering=0) as file:
        file.write(data)
        yield file.fileno()


async def received(end: FrameStream, length: int) -> bytes:
    message, payload_bytes = await end.receive()
    assert isinstance(message, m.Data) and payload_bytes == length
    buffer = bytearray(length)
    await end.payload_into(memoryview(buffer))
    return bytes(buffer)


async def test_a_file_arrives_and_zeros_stand_for_what_it_lacks() -> None:
    data = os.urandom(300_000)
    with content(data) as fd:
        async with connected() as (near, far), trio.open_nursery() as nursery:
            nursery.start_soon(near.send_file, m.Data(1, 0, 400_000), fd, 100_000, 400_000)
            assert await received(far, 400_000) == data[100_000:] + bytes(200_000)


async def test_sending_to_somebody_who_does_not_read_can_be_given_up() -> None:
    with content(b"") as fd:
        os.ftruncate(fd, CHUNK_BYTES)
        async with connected() as (near, _):
            with trio.move_on_after(0.3) as waited:
                await send_much(near, fd)
            assert waited.cancelled_caught


async def test_what_went_out_counts_as_progress_although_the_chunk_is_not_done() -> None:
    with content(b"") as fd:
        os.ftruncate(fd, CHUNK_BYTES)
        async with connected() as (near, _), trio.open_nursery() as nursery:
            before = near.progress_at
            nursery.start_soon(send_much, near, fd)
            await trio.sleep(0.2)
            assert near.progress_at > before
            stalled_at = near.progress_at
            await trio.sleep(0.2)
            assert near.progress_at == stalled_at, "nobody reads, so nothing moves"
            nursery.cancel_scope.cancel()


async def test_the_other_side_may_leave_in_the_middle() -> None:
    with content(b"") as fd:
        os.ftruncate(fd, CHUNK_BYTES)
        async with connected() as (near, far), trio.open_nursery() as nursery:

            async def leave() -> None:
                await trio.sleep(0.1)
                await far.aclose()

            nursery.start_soon(leave)
            with pytest.raises(BROKEN):
                await send_much(near, fd)
