"""The wire against random, bent, spliced and repeated bytes: its own error, and nothing else."""

from __future__ import annotations

import itertools
import tracemalloc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachexfs.peers import messages as m
from cachexfs.peers.wire import (
    MAC_BYTES,
    MAX_GREETING_BYTES,
    MAX_HEADER_BYTES,
    NEED_DATA,
    Connection,
    Frame,
    Keys,
    RemoteProtocolError,
)
from tests.any_message import any_message

HEAD_BYTES = 8
AT_MOST_BYTES = 200 << 20
"""What one header of 4 MiB may become in memory."""


class Side:
    """One side of a sealed connection, past its preface; what it sends lies in `frames`."""

    def __init__(self, outward: bytes = b"to", inward: bytes = b"fro") -> None:
        self.wire = Connection()
        self.wire.receive_data(self.wire.preface())
        self.wire.seal(Keys(outward, inward))
        self.frames: list[bytes] = []

    def send(self, message: m.Message, payload: bytes = b"") -> None:
        self.frames.append(self.wire.send(message, len(payload)) + payload)


def receiver() -> Connection:
    return Side(outward=b"fro", inward=b"to").wire


def understood(wire: Connection, portions: list[bytes]) -> list[m.Message]:
    """The messages that arrive before the wire has enough of it."""
    messages: list[m.Message] = []
    try:
        for portion in portions:
            wire.receive_data(portion)
            while True:
                wire.take_payload(memoryview(bytearray(wire.payload_left)))
                if wire.payload_left or (event := wire.next_event()) is NEED_DATA:
                    break
                assert isinstance(event, Frame)
                messages.append(event.message)
    except RemoteProtocolError:
        pass
    return messages


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = [0, *sorted(min(place, len(data)) for place in places), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(ends)]


CUTS = st.lists(st.integers(0, 2000), max_size=8)


@given(st.lists(any_message(), max_size=5), CUTS)
def test_whatever_the_types_allow_arrives_as_it_was(
    messages: list[m.Message], cuts: list[int]
) -> None:
    near = Side()
    for message in messages:
        near.send(message)
    assert understood(receiver(), cut(b"".join(near.frames), cuts)) == messages


def conversation(key: bytes = b"to") -> tuple[list[m.Message], list[bytes]]:
    side = Side(outward=key)
    messages: list[m.Message] = []
    for number in range(1, 5):
        for message, payload in (
            (m.Unlink(number, "/v", b"d/%d" % number, 5), b""),
            (m.Data(number, 0, 3), b"abc"),
            (m.Ping(number), b""),
        ):
            messages.append(message)
            side.send(message, payload)
    return messages, side.frames


SENT, FRAMES = conversation()
OTHERS = conversation(b"of another connection")[1]
BACK = conversation(b"fro")[1]
PLACE = st.integers(0, len(FRAMES) - 1)


def is_prefix(got: list[m.Message]) -> bool:
    return got == SENT[: len(got)]


@given(st.integers(0, len(b"".join(FRAMES)) - 1), st.integers(1, 255), CUTS)
def test_no_bent_byte_makes_another_message(place: int, bend: int, cuts: list[int]) -> None:
    data = bytearray(b"".join(FRAMES))
    data[place] ^= bend
    assert is_prefix(understood(receiver(), cut(bytes(data), cuts)))


@given(PLACE, PLACE)
def test_a_frame_that_is_repeated_or_moved_ends_it(place: int, to: int) -> None:
    bent = [*FRAMES[:to], FRAMES[place], *FRAMES[to:]]
    got = understood(receiver(), [b"".join(bent)])
    assert is_prefix(got) and len(got) <= max(place, to) + 1
    swapped = list(FRAMES)
    swapped[place], swapped[to] = swapped[to], swapped[place]
    assert is_prefix(understood(receiver(), [b"".join(swapped)]))


@given(PLACE, st.integers(1, 11))
def test_a_frame_that_is_left_out_ends_it(place: int, count: int) -> None:
    got = understood(receiver(), [b"".join(FRAMES[:place] + FRAMES[place + count :])])
    assert got == SENT[:place]


@given(PLACE, st.sampled_from([OTHERS, BACK]))
def test_a_frame_of_another_connection_or_sent_back_ends_it(place: int, other: list[bytes]) -> None:
    assert understood(receiver(), [b"".join(FRAMES[:place] + other[place:])]) == SENT[:place]


def test_what_is_sent_in_the_clear_after_the_handshake_is_refused() -> None:
    wire = receiver()
    wire.receive_data(Connection().send(m.Unlink(1, "/v", b"d", 5)) + bytes(64))
    with pytest.raises(RemoteProtocolError, match="has not sent"):
        wire.next_event()


@given(st.binary(max_size=400), CUTS, st.booleans())
def test_random_bytes_say_nothing(data: bytes, cuts: list[int], sealed: bool) -> None:
    wire = receiver() if sealed else Connection()
    assert understood(wire, cut(data if sealed else wire.preface() + data, cuts)) == []


@pytest.mark.parametrize("sealed", [False, True])
@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**20))
def test_nobody_makes_it_wait_for_more_than_the_limit(
    sealed: bool, header_bytes: int, payload_bytes: int, arrived: int
) -> None:
    wire, limit = (receiver(), MAX_HEADER_BYTES) if sealed else (Connection(), MAX_GREETING_BYTES)
    if not sealed:
        wire.receive_data(wire.preface())
    lengths = header_bytes.to_bytes(4, "big") + payload_bytes.to_bytes(4, "big")
    wire.receive_data(lengths + bytes(arrived))
    try:
        waits = wire.next_event() is NEED_DATA
    except RemoteProtocolError:
        waits = False
    assert not waits or arrived < limit + MAC_BYTES


@pytest.mark.parametrize("message", [
    m.Need(1, [(0, 0)] * (MAX_HEADER_BYTES // 3 - 20)),
    m.Forget(1, "v", 1, [(b"", 0)] * (MAX_HEADER_BYTES // 4 - 20)),
    m.VolumeNames(1, [""] * (MAX_HEADER_BYTES - 100)),
])  # fmt: skip
def test_the_costliest_header_stays_within_bounds(message: m.Message) -> None:
    near, wire = Side(), receiver()
    near.send(message)
    assert len(near.frames[0]) > 0.99 * MAX_HEADER_BYTES
    wire.receive_data(near.frames[0])
    tracemalloc.start()
    try:
        assert isinstance(wire.next_event(), Frame)
        assert tracemalloc.get_traced_memory()[1] < AT_MOST_BYTES
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=100), st.sampled_from(["Offer", "Need", "Listing", "Register", "x"]))
def test_a_good_seal_around_nonsense_is_a_remote_error(body: bytes, tag: str) -> None:
    # Whoever has the secret can seal anything.
    near = Side()
    near.wire._encoder = _Raw(msgspec.msgpack.encode({"type": tag})[:-1] + body)  # type: ignore[assignment]
    assert understood(receiver(), [near.wire.send(m.Ping(1)), bytes(9)]) == []


class _Raw:
    def __init__(self, header: bytes) -> None:
        self._header = header

    def encode(self, message: m.Message) -> bytes:
        return self._header
