"""Inode numbers of a shared file system use all of 64 bits: GlusterFS takes them from a hash."""

from __future__ import annotations

import msgspec
import pytest

from cachexfs.peers import messages as m

LARGEST = 2**64 - 1


@pytest.mark.parametrize(
    "message",
    [
        m.Register(1, "volume", LARGEST, []),
        m.Forget(1, "volume", LARGEST, []),
        m.Find(1, "volume", LARGEST, b"name"),
        m.FindAll(1, "volume", LARGEST),
    ],
)
def test_a_directory_may_have_any_number(message: m.Message) -> None:
    sent = msgspec.msgpack.encode(message)
    assert msgspec.msgpack.decode(sent, type=m.Message) == message
