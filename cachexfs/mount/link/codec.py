"""The messages of the FUSE protocol, as far as the link reads or edits them. Pure.

Numbers and layouts are those of include/uapi/linux/fuse.h, protocol 7.40 (Linux 6.9), where
FUSE_PASSTHROUGH and FUSE_HAS_RESEND came in. All integers are in the machine's byte order.
"""

from __future__ import annotations

import errno
import struct
from enum import IntEnum
from typing import NamedTuple


class Opcode(IntEnum):
    """Kinds of requests: enum fuse_opcode."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    READLINK = 5
    SYMLINK = 6
    MKNOD = 8
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    LINK = 13
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    SETXATTR = 21
    GETXATTR = 22
    LISTXATTR = 23
    REMOVEXATTR = 24
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    FSYNCDIR = 30
    ACCESS = 34
    CREATE = 35
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42
    FALLOCATE = 43
    READDIRPLUS = 44
    RENAME2 = 45
    LSEEK = 46
    COPY_FILE_RANGE = 47
    SYNCFS = 50


UNANSWERED = frozenset({Opcode.FORGET, Opcode.BATCH_FORGET, Opcode.INTERRUPT})
"""Requests to which there is no reply (an interrupt is answered by the interrupted request)."""

REQUEST = struct.Struct("=IIQQIIIHH")
"""struct fuse_in_header: len, opcode, unique, nodeid, uid, gid, pid, total_extlen, padding."""

REPLY = struct.Struct("=IiQ")
"""struct fuse_out_header: len, error (0 or a negative errno), unique."""

RESEND_BIT = 1 << 63
"""FUSE_UNIQUE_RESEND: in `unique` of a request that was sent before, to a daemon that died."""

NOTIFY_RESEND = 7
"""enum fuse_notify_code, FUSE_NOTIFY_RESEND: send every unanswered request again."""

INIT_EXT, PASSTHROUGH, HAS_RESEND, WRITEBACK_CACHE = 1 << 30, 1 << 37, 1 << 39, 1 << 16
"""FUSE_INIT_EXT, FUSE_PASSTHROUGH, FUSE_HAS_RESEND, FUSE_WRITEBACK_CACHE: bits of the flags of
INIT; those from bit 32 on travel in `flags2`."""

HANDLE_KILLPRIV_V2 = 1 << 28
"""FUSE_HANDLE_KILLPRIV_V2: we take set-ID bits away from a file that is written; without it the
kernel asks for `security.capability` before every single write(2), passthrough or not."""

FOPEN_DIRECT_IO, FOPEN_PASSTHROUGH = 1 << 0, 1 << 7
"""Bits of `open_flags` in struct fuse_open_out."""

MAX_STACK_DEPTH = 1
"""The RAM tier is a plain file system below ours: one level (FILESYSTEM_MAX_STACK_DEPTH is 2)."""

_INIT_IN = struct.Struct("=IIIII")  # major, minor, max_readahead, flags, flags2
_INIT_FLAGS_AT = REPLY.size + 12
_INIT_MAX_WRITE_AT = REPLY.size + 20
_INIT_FLAGS2_AT = REPLY.size + 32
_INIT_STACK_DEPTH_AT = REPLY.size + 36
_INIT_WHOLE = REPLY.size + 64
_OPEN_OUT = struct.Struct("=QIi")  # fh, open_flags, backing_id
_ENTRY_OUT_BYTES = 128
_GETXATTR_IN_BYTES = 8  # struct fuse_getxattr_in: size, padding
_WORD = struct.Struct("=I")
_NODEID = struct.Struct("=Q")
FALLOCATE_IN = struct.Struct("=QQQII")  # fh, offset, length, mode, padding
LSEEK_IN = struct.Struct("=QQII")  # fh, offset, whence, padding
LSEEK_OUT = struct.Struct("=Q")
COPY_IN = struct.Struct("=QQQQQQQ")  # fh_in, off_in, nodeid_out, fh_out, off_out, len, flags
WRITE_OUT = struct.Struct("=II")  # size, padding


class Header(NamedTuple):
    """The head of a request. `is_resent`: another daemon may have carried it out already."""

    length: int
    opcode: int
    unique: int
    nodeid: int
    is_resent: bool


class Offer(NamedTuple):
    """What a kernel offers in INIT."""

    passthrough: bool
    resend: bool


Buffer = bytes | bytearray | memoryview


def header(message: Buffer) -> Header:
    """The head of a request. Raises `struct.error` for less than a head."""
    length, opcode, unique, nodeid, *_ = REQUEST.unpack_from(message)
    return Header(length, opcode, unique, nodeid, bool(unique & RESEND_BIT))


def reply_unique(message: Buffer) -> tuple[int, int]:
    """Of a reply: its error (0 or a negative errno) and the `unique` of its request."""
    _, error, unique = REPLY.unpack_from(message)
    return error, unique


def offer(request: Buffer) -> Offer:
    """What an INIT request offers."""
    _, _, _, flags, flags2 = _INIT_IN.unpack_from(request, REQUEST.size)
    both = flags | (flags2 << 32 if flags & INIT_EXT else 0)
    return Offer(bool(both & PASSTHROUGH), bool(both & HAS_RESEND))


def possible(reply: Buffer, wanted: Offer) -> tuple[Offer, str]:
    """What of `wanted` a reply to INIT can take, and why not all of it ("" for all)."""
    if len(reply) < _INIT_WHOLE:
        return Offer(passthrough=False, resend=False), "libfuse's reply to INIT is too short"
    (flags,) = _WORD.unpack_from(reply, _INIT_FLAGS_AT)
    if flags & WRITEBACK_CACHE and wanted.passthrough:
        return wanted._replace(passthrough=False), "the writeback cache is on, which excludes it"
    return wanted, ""


def accept(reply: bytearray, wanted: Offer, max_write: int) -> None:
    """Edit the reply to INIT so that it takes what is wanted (offered, and `possible`), and no
    larger writes than `max_write` bytes.
    """
    if len(reply) < _INIT_WHOLE:  # of an old protocol, or a refusal: nothing was possible
        return
    (flags,) = _WORD.unpack_from(reply, _INIT_FLAGS_AT)
    bits = INIT_EXT | HAS_RESEND * wanted.resend
    if wanted.passthrough:
        bits |= PASSTHROUGH | HANDLE_KILLPRIV_V2
    (flags2,) = _WORD.unpack_from(reply, _INIT_FLAGS2_AT)
    _WORD.pack_into(reply, _INIT_FLAGS_AT, flags | bits & 0xFFFFFFFF)
    _WORD.pack_into(reply, _INIT_FLAGS2_AT, flags2 | bits >> 32)
    (most,) = _WORD.unpack_from(reply, _INIT_MAX_WRITE_AT)
    _WORD.pack_into(reply, _INIT_MAX_WRITE_AT, min(most, max_write))
    _WORD.pack_into(reply, _INIT_STACK_DEPTH_AT, MAX_STACK_DEPTH if wanted.passthrough else 0)


def pass_through(reply: bytearray, opcode: int, backing_id: int) -> None:
    """Edit the reply to OPEN or CREATE: the kernel reads and writes the backing file itself.

    Other open flags are dropped: they speak of a data path that is not used then.
    """
    at = REPLY.size + (_ENTRY_OUT_BYTES if opcode == Opcode.CREATE else 0)
    handle, _, _ = _OPEN_OUT.unpack_from(reply, at)
    _OPEN_OUT.pack_into(reply, at, handle, FOPEN_PASSTHROUGH, backing_id)


def opened_node(reply: Buffer, opcode: int, nodeid: int) -> int:
    """The inode number that a reply to OPEN or CREATE is about; `nodeid` is the request's."""
    return _NODEID.unpack_from(reply, REPLY.size)[0] if opcode == Opcode.CREATE else nodeid


def asked_xattr(request: Buffer) -> bytes:
    """The name in a GETXATTR request."""
    return bytes(request[REQUEST.size + _GETXATTR_IN_BYTES :]).rstrip(b"\0")


def answer(unique: int, payload: bytes = b"") -> bytes:
    """A reply of our own."""
    return REPLY.pack(REPLY.size + len(payload), 0, unique) + payload


def refusal(unique: int, code: int) -> bytes:
    """A reply with an errno."""
    return REPLY.pack(REPLY.size, -(code or errno.EIO), unique)


def resend() -> bytes:
    """The notification that makes the kernel send every unanswered request again."""
    return REPLY.pack(REPLY.size, NOTIFY_RESEND, 0)
