"""What pyfuse3 has no handler for, answered from the files that are open.

fallocate (so that posix_fallocate does not write a byte into every page), lseek to data and holes,
and copying inside the kernel.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Awaitable, Callable

import trio

from cachexfs.mount.errnos import answer
from cachexfs.mount.files import OpenFiles
from cachexfs.mount.link import codec
from cachexfs.mount.link.codec import Opcode

_COPIES = 2


class Answers:
    """An `Answerer` of the relay."""

    def __init__(self, files: OpenFiles) -> None:
        self._files = files
        self._copies = trio.CapacityLimiter(_COPIES)
        self._table: dict[int, Callable[[bytes], Awaitable[bytes]]] = {
            Opcode.FALLOCATE: self._fallocate,
            Opcode.LSEEK: self._lseek,
            Opcode.COPY_FILE_RANGE: self._copy_file_range,
        }

    def answers(self, opcode: int) -> bool:
        """Whether a request is one of these."""
        return opcode in self._table

    async def answer(self, message: bytes) -> bytes:
        """The payload of the reply. Raises OSError."""
        head = codec.header(message)
        return await self._table[head.opcode](message[codec.REQUEST.size :])

    async def _fallocate(self, body: bytes) -> bytes:
        handle, offset, length, mode, _ = codec.FALLOCATE_IN.unpack_from(body)
        fd = await self._files.to_write(handle)
        fallocate(fd, mode, offset, length)
        return b""

    async def _lseek(self, body: bytes) -> bytes:
        handle, offset, whence, _ = codec.LSEEK_IN.unpack_from(body)
        fd = await self._files.to_read(handle)
        return codec.LSEEK_OUT.pack(os.lseek(fd, offset, whence))

    async def _copy_file_range(self, body: bytes) -> bytes:
        handle_in, offset_in, _, handle_out, offset_out, length, flags = codec.COPY_IN.unpack_from(
            body
        )
        if flags:
            raise answer(errno.EINVAL)
        source = await self._files.to_read(handle_in)
        target = await self._files.to_write(handle_out)
        copied = await trio.to_thread.run_sync(
            lambda: os.copy_file_range(source, target, length, offset_in, offset_out),
            limiter=self._copies,
        )
        return codec.WRITE_OUT.pack(copied, 0)


def fallocate(fd: int, mode: int, offset: int, length: int) -> None:
    """fallocate(2) with a mode, which Python's `os` does not offer. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fallocate(fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
