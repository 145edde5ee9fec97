"""The FUSE messages, byte by byte, against bytes written out by hand from linux/fuse.h.

The bytes are those of a little-endian machine.
"""

from __future__ import annotations

import errno
import struct
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachexfs.mount.link import codec
from cachexfs.mount.link.codec import Offer, Opcode

pytestmark = pytest.mark.skipif(sys.byteorder != "little", reason="bytes of little-endian machines")


def literal(text: str) -> bytes:
    """Bytes from hexadecimal digits; what follows a # is for people."""
    return bytes.fromhex("".join(line.partition("#")[0] for line in text.splitlines()))


REQUEST_HEAD = literal("""
    68 00 00 00              # len 104
    1a 00 00 00              # opcode 26: INIT
    02 00 00 00 00 00 00 00  # unique 2
    00 00 00 00 00 00 00 00  # nodeid
    00 00 00 00 00 00 00 00  # uid, gid
    00 00 00 00 00 00 00 00  # pid, total_extlen, padding
""")

INIT_REQUEST = REQUEST_HEAD + literal("""
    07 00 00 00              # major 7
    28 00 00 00              # minor 40
    00 00 02 00              # max_readahead 131072
    fb ff ff 73              # flags, with bit 30: FUSE_INIT_EXT
    a0 00 00 00              # flags2, with bits 37 - 32 = 5 (passthrough) and 39 - 32 = 7 (resend)
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  # unused
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
""")

INIT_REPLY = literal("""
    50 00 00 00              # len 80
    00 00 00 00              # error
    02 00 00 00 00 00 00 00  # unique 2
    07 00 00 00 28 00 00 00  # major 7, minor 40
    00 00 02 00              # max_readahead
    39 00 00 10              # flags, with FUSE_HANDLE_KILLPRIV_V2
    0c 00 09 00              # max_background 12, congestion_threshold 9
    00 00 10 00              # max_write 1 MiB
    01 00 00 00              # time_gran
    00 01 00 00              # max_pages 256, map_alignment 0
    00 00 00 00              # flags2
    00 00 00 00              # max_stack_depth
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  # unused
""")

ACCEPTED = literal("""
    50 00 00 00
    00 00 00 00
    02 00 00 00 00 00 00 00
    07 00 00 00 28 00 00 00
    00 00 02 00
    39 00 00 50              # flags, with FUSE_INIT_EXT
    0c 00 09 00
    00 00 02 00              # max_write 128 KiB
    01 00 00 00
    00 01 00 00
    a0 00 00 00              # flags2: passthrough, resend
    01 00 00 00              # max_stack_depth 1
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
""")


def test_the_head_of_a_request() -> None:
    assert codec.header(INIT_REQUEST) == (104, Opcode.INIT, 2, 0, False)


def test_the_highest_bit_of_unique_says_that_a_request_is_resent() -> None:
    message = literal("""
        28 00 00 00 0e 00 00 00  # len 40, opcode 14: OPEN
        06 00 00 00 00 00 00 80  # unique 6, with bit 63
        2a 00 00 00 00 00 00 00  # nodeid 42
        00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
    """)
    head = codec.header(message)
    assert (head.opcode, head.nodeid, head.is_resent) == (Opcode.OPEN, 42, True)
    assert head.unique == 0x8000000000000006  # the reply must carry the bit, too


def test_less_than_a_head_is_refused() -> None:
    with pytest.raises(struct.error):
        codec.header(INIT_REQUEST[:39])


def test_what_a_kernel_offers() -> None:
    assert codec.offer(INIT_REQUEST) == Offer(passthrough=True, resend=True)


@pytest.mark.parametrize(
    ("flags2", "offered"),
    [("20", Offer(True, False)), ("80", Offer(False, True)), ("5f", Offer(False, False))],
)
def test_each_bit_is_an_offer_of_its_own(flags2: str, offered: Offer) -> None:
    message = bytearray(INIT_REQUEST)
    message[56:57] = bytes.fromhex(flags2)
    assert codec.offer(message) == offered


def test_without_the_extension_the_second_flags_mean_nothing() -> None:
    message = bytearray(INIT_REQUEST)
    message[55] = 0x33  # bit 30 of flags is gone
    assert codec.offer(message) == Offer(passthrough=False, resend=False)


def test_taking_all_that_is_offered() -> None:
    reply = bytearray(INIT_REPLY)
    codec.accept(reply, Offer(passthrough=True, resend=True), max_write=128 << 10)
    assert bytes(reply) == ACCEPTED


def test_taking_resend_alone() -> None:
    reply = bytearray(INIT_REPLY)
    codec.accept(reply, Offer(passthrough=False, resend=True), max_write=1 << 20)
    assert reply[28:32] == b"\x39\x00\x00\x50"
    assert reply[36:40] == b"\x00\x00\x10\x00"
    assert reply[48:56] == b"\x80\x00\x00\x00" + b"\x00\x00\x00\x00"


def test_flags_that_libfuse_set_itself_stay() -> None:
    reply = bytearray(INIT_REPLY)
    reply[28:32], reply[48:52] = b"\x39\x08\x00\x50", b"\x01\x00\x00\x00"
    codec.accept(reply, Offer(passthrough=True, resend=True), max_write=1 << 20)
    assert reply[28:32] == b"\x39\x08\x00\x50"
    assert reply[48:52] == b"\xa1\x00\x00\x00"


def test_writes_never_become_larger_than_libfuse_wants_them() -> None:
    reply = bytearray(INIT_REPLY)
    reply[36:40] = b"\x00\x10\x00\x00"
    codec.accept(reply, Offer(passthrough=False, resend=False), max_write=1 << 20)
    assert reply[36:40] == b"\x00\x10\x00\x00"


def test_passthrough_and_the_writeback_cache_exclude_each_other() -> None:
    reply = bytearray(INIT_REPLY)
    reply[30] |= 1  # bit 16
    taken, obstacle = codec.possible(reply, Offer(passthrough=True, resend=True))
    assert taken == Offer(passthrough=False, resend=True)
    assert "writeback" in obstacle
    codec.accept(reply, taken, max_write=1 << 20)
    assert reply[28:32] == b"\x39\x00\x01\x50"
    assert reply[48:56] == b"\x80\x00\x00\x00" + b"\x00\x00\x00\x00"


@pytest.mark.parametrize("wanted", [Offer(False, False), Offer(False, True), Offer(True, True)])
def test_what_nothing_stands_against_is_possible(wanted: Offer) -> None:
    assert codec.possible(INIT_REPLY, wanted) == (wanted, "")


@pytest.mark.parametrize("length", [16, 24, 40, 79])
def test_a_reply_without_room_for_the_second_flags_stays_as_it_is(length: int) -> None:
    reply = bytearray(INIT_REPLY[:length])
    taken, obstacle = codec.possible(reply, Offer(True, True))
    assert taken == Offer(passthrough=False, resend=False)
    assert "too short" in obstacle
    codec.accept(reply, taken, max_write=128 << 10)
    assert bytes(reply) == INIT_REPLY[:length]


OPEN_REPLY = literal("""
    20 00 00 00 00 00 00 00  # len 32, error 0
    06 00 00 00 00 00 00 00  # unique 6
    55 00 00 00 00 00 00 00  # fh 85
    01 00 00 00 00 00 00 00  # open_flags: FOPEN_DIRECT_IO; backing_id 0
""")


def test_an_open_that_goes_past_the_daemon() -> None:
    reply = bytearray(OPEN_REPLY)
    codec.pass_through(reply, Opcode.OPEN, backing_id=3)
    assert bytes(reply) == literal("""
        20 00 00 00 00 00 00 00
        06 00 00 00 00 00 00 00
        55 00 00 00 00 00 00 00
        80 00 00 00 03 00 00 00  # FOPEN_PASSTHROUGH alone; backing_id 3
    """)


def test_a_create_that_goes_past_the_daemon() -> None:
    entry = bytes(range(128))  # struct fuse_entry_out: nodeid first
    reply = bytearray(b"\xa0" + bytes(15) + entry + OPEN_REPLY[16:])
    codec.pass_through(reply, Opcode.CREATE, backing_id=0x01020304)
    assert bytes(reply[:152]) == b"\xa0" + bytes(15) + entry + b"\x55" + bytes(7)
    assert bytes(reply[152:]) == b"\x80\x00\x00\x00" + b"\x04\x03\x02\x01"


def test_the_inode_of_a_create_is_in_its_reply_and_that_of_an_open_in_its_request() -> None:
    reply = OPEN_REPLY[:16] + b"\x2b" + bytes(143)
    assert codec.opened_node(reply, Opcode.CREATE, nodeid=1) == 0x2B
    assert codec.opened_node(OPEN_REPLY, Opcode.OPEN, nodeid=42) == 42


def test_the_notification_that_asks_for_everything_again() -> None:
    assert codec.resend() == literal("""
        10 00 00 00              # len 16
        07 00 00 00              # code 7: FUSE_NOTIFY_RESEND, where a reply has its error
        00 00 00 00 00 00 00 00  # unique 0: a notification
    """)


def test_a_reply_of_our_own() -> None:
    assert codec.answer(6, b"\x01\x02") == literal("""
        12 00 00 00 00 00 00 00
        06 00 00 00 00 00 00 00
        01 02
    """)


def test_a_refusal_carries_the_negative_errno() -> None:
    assert codec.refusal(6, errno.ENXIO) == literal("""
        10 00 00 00
        fa ff ff ff              # -6
        06 00 00 00 00 00 00 00
    """)
    assert codec.reply_unique(codec.refusal(6, 0)) == (-errno.EIO, 6)


@given(st.integers(0, 2**64 - 1), st.integers(1, 4095))
def test_every_refusal_can_be_read_back(unique: int, code: int) -> None:
    assert codec.reply_unique(codec.refusal(unique, code)) == (-code, unique)


@pytest.mark.parametrize(
    ("layout", "size"),
    [
        (codec.REQUEST, 40),
        (codec.REPLY, 16),
        (codec.FALLOCATE_IN, 32),
        (codec.LSEEK_IN, 24),
        (codec.LSEEK_OUT, 8),
        (codec.COPY_IN, 56),
        (codec.WRITE_OUT, 8),
    ],
)
def test_structures_are_as_long_as_in_the_header_file(layout: struct.Struct, size: int) -> None:
    assert layout.size == size
