"""The relay between a fake device and a fake libfuse: both are ends of socket pairs."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
import trio

from cachexfs.mount.link import codec, device
from cachexfs.mount.link.codec import Offer, Opcode
from cachexfs.mount.link.relay import Relay
from cachexfs.mount.ports import Request

pytestmark = pytest.mark.trio

WAIT_S = 2.0
INIT_BODY = struct.pack("=IIIII44x", 7, 40, 1 << 17, codec.INIT_EXT, 1 << 5 | 1 << 7)
INIT_ANSWER = struct.pack("=IIIIHHIIHHII24x", 7, 40, 1 << 17, 0, 12, 9, 1 << 20, 1, 256, 0, 0, 0)
OPEN_ANSWER = struct.pack("=QIi", 84, 0, 0)


def request(opcode: int, unique: int, body: bytes = b"", nodeid: int = 1) -> bytes:
    """What the kernel sends."""
    length = codec.REQUEST.size + len(body)
    return codec.REQUEST.pack(length, opcode, unique, nodeid, 0, 0, 0, 0, 0) + body


class FakeAnswerer:
    """Answers lseek: slowly, wrongly or well."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.may_go = trio.Event()
        self.may_go.set()

    def answers(self, opcode: int) -> bool:
        return opcode == Opcode.LSEEK

    async def answer(self, message: bytes) -> bytes:
        await self.may_go.wait()
        if self.error is not None:
            raise self.error
        return codec.LSEEK_OUT.pack(4096)


class Bench:
    """A relay with both its neighbours played by the test."""

    def __init__(self, saved_init: bytes | None = None) -> None:
        self.kernel, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._theirs.setblocking(False)
        self.kernel.setblocking(False)
        self.backings: dict[int, int] = {}
        self.answerer = FakeAnswerer()
        self.saved: list[bytes] = []
        self.has_ended = False
        self.offers: list[Offer] = []
        self.obstacles: list[str] = []
        self.relay = Relay(
            self._theirs.fileno(),
            self._negotiate,
            self.obstacles.append,
            self.backings.get,
            self.answerer,
            saved_init,
            self.saved.append,
            self._end,
        )
        self.libfuse = socket.socket(fileno=self.relay.inner)
        self.libfuse.setblocking(False)

    def _negotiate(self, offer: Offer) -> Offer:
        self.offers.append(offer)
        return offer

    def _end(self) -> None:
        self.has_ended = True

    async def at_libfuse(self) -> bytes:
        """The next request, as libfuse reads it."""
        with trio.fail_after(WAIT_S):
            await trio.lowlevel.wait_readable(self.libfuse)
            return self.libfuse.recv(1 << 21)

    async def at_kernel(self) -> bytes:
        """The next reply, as the kernel gets it."""
        with trio.fail_after(WAIT_S):
            await trio.lowlevel.wait_readable(self.kernel)
            return self.kernel.recv(1 << 21)

    async def at_kernel_nothing(self) -> None:
        """No reply comes."""
        await trio.sleep(0.02)
        with pytest.raises(BlockingIOError):
            self.kernel.recv(1 << 21)

    def close(self) -> None:
        self.relay.close()
        for end in (self.kernel, self._theirs, self.libfuse):
            end.close()


@contextmanager
def closing(bench: Bench) -> Iterator[Bench]:
    try:
        yield bench
    finally:
        bench.close()


@asynccontextmanager
async def running(saved_init: bytes | None = None) -> AsyncIterator[Bench]:
    with closing(Bench(saved_init)) as bench:
        async with trio.open_nursery() as nursery:
            await nursery.start(bench.relay.run)
            yield bench
            nursery.cancel_scope.cancel()


# --- order ------------------------------------------------------------------------------------


async def test_requests_reach_libfuse_in_the_order_in_which_they_were_sent() -> None:
    async with running() as bench:
        sent = [request(Opcode.GETATTR, 2 * n, bytes(16)) for n in range(1, 200)]
        got = []
        for message in sent:
            bench.kernel.send(message)
            if len(got) < 50:
                got.append(await bench.at_libfuse())
        while len(got) < len(sent):
            got.append(await bench.at_libfuse())
        assert got == sent


async def test_a_reply_waits_for_the_kick_of_its_handler() -> None:
    async with running() as bench:
        bench.kernel.send(request(Opcode.GETATTR, 2, bytes(16)))
        await bench.at_libfuse()
        bench.relay.begin("getattr")
        bench.libfuse.send(codec.answer(2, b"attributes"))
        await bench.at_kernel_nothing()
        bench.relay.kick()
        assert await bench.at_kernel() == codec.answer(2, b"attributes")


async def test_a_reply_that_is_written_after_the_kick_is_fetched_in_the_next_round() -> None:
    async with running() as bench:
        bench.kernel.send(request(Opcode.GETATTR, 2, bytes(16)))
        await bench.at_libfuse()
        bench.relay.kick()
        bench.libfuse.send(codec.answer(2))  # as libfuse does: after the handler, before an await
        assert await bench.at_kernel() == codec.answer(2)


async def test_replies_go_down_in_the_order_in_which_libfuse_wrote_them() -> None:
    async with running() as bench:
        for unique in (2, 4, 6):
            bench.kernel.send(request(Opcode.GETATTR, unique, bytes(16)))
            await bench.at_libfuse()
        for unique in (6, 2, 4):
            bench.libfuse.send(codec.answer(unique))
        bench.relay.kick()
        assert [codec.reply_unique(await bench.at_kernel())[1] for _ in range(3)] == [6, 2, 4]


# --- which request a handler has ----------------------------------------------------------------


async def test_a_handler_that_begins_is_told_which_request_it_has() -> None:
    async with running() as bench:
        bench.kernel.send(request(Opcode.MKDIR, 2, b"\0\0\0\0\0\0\0\0a\0"))
        bench.kernel.send(request(Opcode.CREATE, 4 | codec.RESEND_BIT, bytes(16) + b"b\0"))
        await bench.at_libfuse()
        await bench.at_libfuse()
        bench.relay.begin("mkdir")
        assert bench.relay.request == Request(2, is_resent=False)
        bench.relay.begin("create")
        assert bench.relay.request == Request(4, is_resent=True)


async def test_a_request_that_libfuse_refused_itself_is_skipped() -> None:
    async with running() as bench:
        bench.kernel.send(request(Opcode.MKDIR, 2))
        bench.kernel.send(request(Opcode.RELEASE, 4, bytes(24)))
        await bench.at_libfuse()
        await bench.at_libfuse()
        bench.relay.begin("release")
        assert bench.relay.request == Request(4, is_resent=False)


async def test_a_handler_without_a_request_gets_an_empty_one() -> None:
    async with running() as bench:
        bench.relay.begin("open")
        assert bench.relay.request == Request()


# --- requests that no handler sees -------------------------------------------------------------


async def test_what_no_handler_answers_is_waited_for_without_a_kick() -> None:
    async with running() as bench:
        for unique in (2, 4):  # POLL and IOCTL: libfuse says ENOSYS itself
            bench.kernel.send(request(40 if unique == 2 else 39, unique))
            await bench.at_libfuse()
            bench.libfuse.send(codec.refusal(unique, errno.ENOSYS))
            assert await bench.at_kernel() == codec.refusal(unique, errno.ENOSYS)


@pytest.mark.parametrize("opcode", [Opcode.FORGET, Opcode.BATCH_FORGET, Opcode.INTERRUPT])
async def test_nobody_waits_for_what_has_no_reply(opcode: Opcode) -> None:
    async with running() as bench:
        bench.kernel.send(request(opcode, 2, bytes(16)))
        await bench.at_libfuse()
        bench.libfuse.send(codec.answer(4))
        await bench.at_kernel_nothing()
        bench.relay.kick()
        await bench.at_kernel()


async def test_the_answerer_answers_past_libfuse() -> None:
    async with running() as bench:
        bench.kernel.send(request(Opcode.LSEEK, 2, bytes(24)))
        assert await bench.at_kernel() == codec.answer(2, codec.LSEEK_OUT.pack(4096))
        with pytest.raises(BlockingIOError):
            bench.libfuse.recv(1)


async def test_a_slow_answer_holds_up_nobody_else() -> None:
    async with running() as bench:
        bench.answerer.may_go = trio.Event()
        bench.kernel.send(request(Opcode.LSEEK, 2, bytes(24)))
        bench.kernel.send(request(Opcode.GETATTR, 4, bytes(16)))
        await bench.at_libfuse()
        bench.libfuse.send(codec.answer(4))
        bench.relay.kick()
        assert codec.reply_unique(await bench.at_kernel())[1] == 4
        bench.answerer.may_go.set()
        assert codec.reply_unique(await bench.at_kernel())[1] == 2


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.ENXIO, "no data"), errno.ENXIO),
        (OSError("without a number"), errno.EIO),
        (RuntimeError("a bug"), errno.EIO),
    ],
)
async def test_an_answer_that_fails_becomes_an_errno(error: Exception, code: int) -> None:
    async with running() as bench:
        bench.answerer.error = error
        bench.kernel.send(request(Opcode.LSEEK, 2, bytes(24)))
        assert await bench.at_kernel() == codec.refusal(2, code)


# --- INIT and passthrough ----------------------------------------------------------------------


async def test_init_is_negotiated_and_kept_for_the_next_daemon() -> None:
    async with running() as bench:
        init = request(Opcode.INIT, 2, INIT_BODY)
        bench.kernel.send(init)
        assert await bench.at_libfuse() == init
        assert bench.saved == [init]
        assert bench.offers == [Offer(passthrough=True, resend=True)]
        bench.libfuse.send(codec.answer(2, INIT_ANSWER))
        reply = await bench.at_kernel()
        assert struct.unpack_from("=I", reply, 16 + 32) == (1 << 5 | 1 << 7,)
        assert struct.unpack_from("=I", reply, 16 + 36) == (1,)
        assert bench.obstacles == []


@pytest.mark.parametrize("is_taken_over", [False, True])
async def test_a_libfuse_that_uses_the_writeback_cache_is_served_without_passthrough(
    is_taken_over: bool,
) -> None:
    init = request(Opcode.INIT, 2, INIT_BODY)
    async with running(saved_init=init if is_taken_over else None) as bench:
        if not is_taken_over:
            bench.kernel.send(init)
        await bench.at_libfuse()
        answer = bytearray(INIT_ANSWER)
        struct.pack_into("=I", answer, 12, codec.WRITEBACK_CACHE)
        bench.libfuse.send(codec.answer(2, bytes(answer)))
        reply = await bench.at_kernel()
        assert len(bench.obstacles) == 1
        assert "writeback" in bench.obstacles[0]
        if not is_taken_over:
            assert struct.unpack_from("=I", reply, 16 + 32) == (1 << 7,)
        bench.kernel.send(request(Opcode.GETATTR, 4, bytes(16)))  # and it serves
        assert codec.header(await bench.at_libfuse()).unique == 4


async def test_a_daemon_that_takes_over_tells_libfuse_and_not_the_kernel() -> None:
    init = request(Opcode.INIT, 2, INIT_BODY)
    async with running(saved_init=init) as bench:
        assert await bench.at_libfuse() == init
        bench.libfuse.send(codec.answer(2, INIT_ANSWER))
        assert await bench.at_kernel() == codec.resend()
        assert bench.saved == []
        bench.kernel.send(request(Opcode.GETATTR, 4 | codec.RESEND_BIT, bytes(16)))
        assert codec.header(await bench.at_libfuse()).is_resent
        bench.libfuse.send(codec.answer(4 | codec.RESEND_BIT))
        bench.relay.kick()
        assert codec.reply_unique(await bench.at_kernel())[1] == 4 | codec.RESEND_BIT


async def test_a_daemon_that_takes_over_reads_nothing_before_it_asked_for_all_again() -> None:
    # What it had read by then would come once more, and be carried out twice.
    init = request(Opcode.INIT, 2, INIT_BODY)
    async with running(saved_init=init) as bench:
        bench.kernel.send(request(Opcode.GETATTR, 4, bytes(16)))
        assert await bench.at_libfuse() == init
        await trio.sleep(0.02)
        with pytest.raises(BlockingIOError):
            bench.libfuse.recv(1 << 21)
        bench.libfuse.send(codec.answer(2, INIT_ANSWER))
        assert await bench.at_kernel() == codec.resend()
        assert codec.header(await bench.at_libfuse()).unique == 4


async def test_an_open_of_an_inode_with_a_backing_file_goes_past_the_daemon() -> None:
    async with running() as bench:
        bench.backings[42] = 3
        for unique, nodeid in ((2, 42), (4, 43)):
            bench.kernel.send(request(Opcode.OPEN, unique, bytes(8), nodeid))
            await bench.at_libfuse()
            bench.libfuse.send(codec.answer(unique, OPEN_ANSWER))
            bench.relay.kick()
        past, through = await bench.at_kernel(), await bench.at_kernel()
        assert past[16:] == struct.pack("=QIi", 84, codec.FOPEN_PASSTHROUGH, 3)
        assert through[16:] == OPEN_ANSWER


async def test_a_create_is_known_by_the_inode_in_its_reply() -> None:
    async with running() as bench:
        bench.backings[42] = 3
        bench.kernel.send(request(Opcode.CREATE, 2, bytes(16) + b"a\0", nodeid=1))
        await bench.at_libfuse()
        entry = struct.pack("=Q", 42) + bytes(120)
        bench.libfuse.send(codec.answer(2, entry + OPEN_ANSWER))
        bench.relay.kick()
        reply = await bench.at_kernel()
        assert reply[16 + 128 :] == struct.pack("=QIi", 84, codec.FOPEN_PASSTHROUGH, 3)


async def test_an_open_that_failed_is_left_alone() -> None:
    async with running() as bench:
        bench.backings[42] = 3
        bench.kernel.send(request(Opcode.OPEN, 2, bytes(8), nodeid=42))
        await bench.at_libfuse()
        bench.libfuse.send(codec.refusal(2, errno.EACCES))
        bench.relay.kick()
        assert await bench.at_kernel() == codec.refusal(2, errno.EACCES)


# --- when things go wrong ----------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.ENOENT, errno.ENODEV, errno.EINVAL])
async def test_a_reply_that_the_kernel_does_not_want_ends_nothing(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running() as bench:
        refuse = [OSError(code, os.strerror(code))]
        write = os.write

        def refusing(fd: int, data: bytes) -> int:
            if refuse:
                raise refuse.pop()
            return write(fd, data)

        monkeypatch.setattr(os, "write", refusing)
        for unique in (2, 4):
            bench.kernel.send(request(Opcode.GETATTR, unique, bytes(16)))
            await bench.at_libfuse()
            bench.libfuse.send(codec.answer(unique))
            bench.relay.kick()
        assert await bench.at_kernel() == codec.answer(4)
        assert not refuse


async def test_a_full_socket_holds_requests_back_and_loses_none() -> None:
    async with running() as bench:
        body = bytes(1 << 17)
        got: list[int] = []

        async def kernel() -> None:
            for n in range(1, 101):
                await trio.lowlevel.wait_writable(bench.kernel)
                try:
                    bench.kernel.send(request(Opcode.WRITE, 2 * n, body))
                except BlockingIOError:
                    await trio.sleep(0.001)
                    bench.kernel.setblocking(True)
                    await trio.to_thread.run_sync(
                        bench.kernel.send, request(Opcode.WRITE, 2 * n, body)
                    )
                    bench.kernel.setblocking(False)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(kernel)
            await trio.sleep(0.1)  # libfuse is busy; the socket is full
            while len(got) < 100:
                got.append(codec.header(await bench.at_libfuse()).unique)
        assert got == [2 * n for n in range(1, 101)]


async def test_it_ends_when_the_file_system_is_unmounted(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Bench()) as bench:

        def gone(fd: int, buffers: list[bytearray]) -> int:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

        monkeypatch.setattr(os, "readv", gone)
        bench.kernel.send(request(Opcode.GETATTR, 2, bytes(16)))  # so that it reads
        with trio.fail_after(WAIT_S):
            await bench.relay.run()
        assert bench.has_ended


async def test_a_mount_that_is_gone_at_takeover_is_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone(fd: int) -> None:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    monkeypatch.setattr(device, "ask_again", gone)
    async with running(saved_init=request(Opcode.INIT, 2, INIT_BODY)) as bench:
        await bench.at_libfuse()
        bench.libfuse.send(codec.answer(2, INIT_ANSWER))
        await bench.at_kernel_nothing()
        bench.kernel.send(request(Opcode.GETATTR, 4, bytes(16)))
        await bench.at_libfuse()
