"""Moving the messages between /dev/fuse and libfuse, in pyfuse3's own event loop.

A request is read from the device and sent to libfuse's end of the socket pair; its reply is taken
from there and written to the device. A reply costs no wake-up of its own: a handler that ends calls
`kick`, and its reply is fetched in the next round of the loop, when libfuse has written it. Only
requests that none of our handlers sees (INIT, and what libfuse refuses itself) are waited for at
the socket.

libfuse writes a reply in the loop's own thread, so a full socket would stop everything for ever.
`kick` therefore first fetches what is there: never more than one reply is in the socket.

Requests reach their handlers in the order in which they were sent, and a handler runs at once to
its first `await`; so the handler that begins can be told which request it has (`begin`).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Protocol

import trio

from cachexfs.mount.link import codec, device
from cachexfs.mount.link.codec import Opcode
from cachexfs.mount.ports import Request
from cachexfs.mount.xattrs import is_never_kept

log = logging.getLogger(__name__)

MESSAGE_BYTES = (1 << 20) + 4096
"""A write of 1 MiB and its head; the kernel refuses to hand requests to a smaller buffer."""

_SOCKET_BYTES = 4 << 20
"""Room in the socket pair for a few of the largest messages."""

_SO_SNDBUFFORCE = 32
"""Of asm-generic/socket.h; Python's `socket` does not have it."""

_OPENING = frozenset({Opcode.OPEN, Opcode.CREATE})

HANDLERS: dict[int, str] = {
    Opcode.LOOKUP: "lookup",
    Opcode.GETATTR: "getattr",
    Opcode.SETATTR: "setattr",
    Opcode.READLINK: "readlink",
    Opcode.SYMLINK: "symlink",
    Opcode.MKNOD: "mknod",
    Opcode.MKDIR: "mkdir",
    Opcode.UNLINK: "unlink",
    Opcode.RMDIR: "rmdir",
    Opcode.RENAME: "rename",
    Opcode.RENAME2: "rename",
    Opcode.LINK: "link",
    Opcode.OPEN: "open",
    Opcode.READ: "read",
    Opcode.WRITE: "write",
    Opcode.STATFS: "statfs",
    Opcode.RELEASE: "release",
    Opcode.FSYNC: "fsync",
    Opcode.SETXATTR: "setxattr",
    Opcode.GETXATTR: "getxattr",
    Opcode.LISTXATTR: "listxattr",
    Opcode.REMOVEXATTR: "removexattr",
    Opcode.FLUSH: "flush",
    Opcode.OPENDIR: "opendir",
    Opcode.READDIRPLUS: "readdir",
    Opcode.RELEASEDIR: "releasedir",
    Opcode.FSYNCDIR: "fsyncdir",
    Opcode.CREATE: "create",
}
"""Requests that pyfuse3 gives to a handler of ours, and its name."""


class Answerer(Protocol):
    """Answers what pyfuse3 has no handler for."""

    def answers(self, opcode: int) -> bool:
        """Whether it knows the request."""
        ...

    async def answer(self, message: bytes) -> bytes:
        """The payload of the reply. Raises OSError."""
        ...


class Relay:
    """One connection. `inner` is the descriptor for libfuse.

    `negotiate` chooses from what the kernel offers; `has_no_passthrough` is told why libfuse does
    not let us have it after all. `backing_of(ino)` gives the backing id of an
    inode that is open in passthrough mode, None otherwise. `ended` is called when the file system
    is unmounted.
    """

    def __init__(
        self,
        fd: int,
        negotiate: Callable[[codec.Offer], codec.Offer],
        has_no_passthrough: Callable[[str], None],
        backing_of: Callable[[int], int | None],
        answerer: Answerer,
        saved_init: bytes | None,
        save_init: Callable[[bytes], None],
        ended: Callable[[], None],
    ) -> None:
        self._device = fd
        self._negotiate = negotiate
        self._has_no_passthrough = has_no_passthrough
        self._wanted = codec.Offer(passthrough=False, resend=False)
        self._backing_of = backing_of
        self._answerer = answerer
        self._saved_init = saved_init
        self._save_init = save_init
        self._ended = ended
        self._ours, theirs = _socket_pair()
        room = theirs.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        self.inner = theirs.detach()  # libfuse closes it
        # The kernel counts a message's pages about twice.
        self._largest_write = max(4096, min(1 << 20, room // 2 - 8192) // 4096 * 4096)
        self._init_unique: int | None = None
        self._has_begun = trio.Event()
        self._opening: dict[int, tuple[int, int]] = {}
        self._unhandled: set[int] = set()
        self._is_waiting = False
        self._begun: deque[tuple[int, Request]] = deque()
        self.request = Request()
        self._kicked = trio.Event()
        self._in = bytearray(MESSAGE_BYTES)
        self._out = bytearray(MESSAGE_BYTES)

    # --- for handlers ---------------------------------------------------------------------------

    def begin(self, handler: str) -> None:
        """A handler begins; `request` is the one it has, until its first await."""
        self.request = Request()
        while self._begun:
            opcode, request = self._begun.popleft()
            if HANDLERS[opcode] == handler:
                self.request = request
                return

    def kick(self) -> None:
        """A handler is about to end: its reply will be there in the next round of the loop."""
        self._pump()
        self._kicked.set()

    # --- the tasks ------------------------------------------------------------------------------

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Move messages until the file system is unmounted."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._downwards)
            if self._saved_init is not None:
                self._replay_init(self._saved_init)
                nursery.start_soon(self._wait_for_replies)
            else:
                self._has_begun.set()
            task_status.started()
            await self._has_begun.wait()
            await self._upwards(nursery)
            nursery.cancel_scope.cancel()
        self._ended()

    def close(self) -> None:
        """Close our end of the socket pair; the device is not ours to close."""
        self._ours.close()

    async def _upwards(self, nursery: trio.Nursery) -> None:
        """Requests: from the kernel to libfuse, or to the answerer."""
        while True:
            await trio.lowlevel.wait_readable(self._device)
            while True:
                try:
                    length = os.readv(self._device, [self._in])
                except OSError as error:
                    if error.errno == errno.ENODEV:
                        return
                    if error.errno in (errno.EAGAIN, errno.EINTR, errno.ENOENT):
                        break
                    raise
                await self._upward(memoryview(self._in)[:length], nursery)

    async def _upward(self, message: memoryview, nursery: trio.Nursery) -> None:
        head = codec.header(message)
        if self._answerer.answers(head.opcode):
            nursery.start_soon(self._answer, head.unique, bytes(message))
            return
        if head.opcode == Opcode.GETXATTR and is_never_kept(codec.asked_xattr(message)):
            self._write(codec.refusal(head.unique, errno.ENODATA))  # asked before a file's write
            return
        if head.opcode == Opcode.INIT:
            self._init_unique = head.unique
            self._wanted = self._negotiate(codec.offer(message))
            self._save_init(bytes(message))
        elif head.opcode in _OPENING:
            self._opening[head.unique] = (head.opcode, head.nodeid)
        if head.opcode in HANDLERS:
            self._begun.append(
                (head.opcode, Request(head.unique & ~codec.RESEND_BIT, head.is_resent))
            )
        elif head.opcode not in codec.UNANSWERED:
            self._unhandled.add(head.unique)
            nursery.start_soon(self._wait_for_replies)
        await self._send(message)

    async def _send(self, message: memoryview) -> None:
        while True:
            try:
                self._ours.send(message)
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._ours)
            else:
                return

    async def _downwards(self) -> None:
        """Replies: from libfuse to the kernel, after each kick."""
        while True:
            await self._kicked.wait()
            self._kicked = trio.Event()
            self._pump()

    async def _wait_for_replies(self) -> None:
        """As long as something is under way that no handler will answer; one task at a time."""
        if self._is_waiting:
            return
        self._is_waiting = True
        try:
            while self._unhandled:
                await trio.lowlevel.wait_readable(self._ours)
                self._pump()
        finally:
            self._is_waiting = False

    def _pump(self) -> None:
        while True:
            try:
                length = self._ours.recv_into(self._out)
            except BlockingIOError:
                return
            if length == 0:
                return
            self._downward(length)

    def _downward(self, length: int) -> None:
        message = memoryview(self._out)[:length]
        error, unique = codec.reply_unique(message)
        self._unhandled.discard(unique)
        if unique == self._init_unique:
            self._answer_init(length)
            return
        opened = self._opening.pop(unique, None)
        if opened is not None and error == 0:
            opcode, nodeid = opened
            backing = self._backing_of(codec.opened_node(message, opcode, nodeid))
            if backing is not None:
                codec.pass_through(self._out, opcode, backing)
        self._write(message)

    def _write(self, message: memoryview | bytes) -> None:
        try:
            os.write(self._device, message)
        except OSError as error:
            # ENOENT: the request was interrupted and is gone; ENODEV: unmounted meanwhile.
            if error.errno not in (errno.ENOENT, errno.ENODEV):
                log.warning("the kernel refuses a reply: %s", error)

    # --- INIT -----------------------------------------------------------------------------------

    def _replay_init(self, request: bytes) -> None:
        """Tell libfuse what the kernel told the daemon before; the answer is not sent again."""
        self._init_unique = codec.header(request).unique
        self._wanted = self._negotiate(codec.offer(request))
        self._unhandled.add(self._init_unique)
        self._ours.send(request)

    def _answer_init(self, length: int) -> None:
        self._init_unique = None
        reply = bytearray(memoryview(self._out)[:length])
        taken, obstacle = codec.possible(reply, self._wanted)
        if self._wanted.passthrough and not taken.passthrough:
            self._has_no_passthrough(obstacle)
        if self._saved_init is not None:  # to which the daemon before has replied the same
            with contextlib.suppress(OSError):  # unmounted meanwhile; reading will say so
                device.ask_again(self._device)
            self._has_begun.set()  # what was read before would come again, and be done twice
            return
        codec.accept(reply, taken, self._largest_write)
        self._write(bytes(reply))

    # --- what pyfuse3 has no handler for --------------------------------------------------------

    async def _answer(self, unique: int, message: bytes) -> None:
        try:
            payload = await self._answerer.answer(message)
        except OSError as error:
            self._write(codec.refusal(unique, error.errno or errno.EIO))
        except Exception:
            log.exception("a request of the link failed; the program is told EIO")
            self._write(codec.refusal(unique, errno.EIO))
        else:
            self._write(codec.answer(unique, payload))


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends that keep messages apart, ours non-blocking."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)
        with contextlib.suppress(OSError):  # beyond net.core.wmem_max, with CAP_NET_ADMIN
            end.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _SOCKET_BYTES)
    ends[0].setblocking(False)
    return ends
