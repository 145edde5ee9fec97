"""The wire, joined to itself by a fake wire."""

from __future__ import annotations

import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachexfs.peers import messages as m
from cachexfs.peers.wire import (
    MAX_PAYLOAD_BYTES,
    NEED_DATA,
    Connection,
    Frame,
    LocalProtocolError,
    RemoteProtocolError,
)

REPLICA = m.Replica(
    volume="/lustre", path=b"a/\xff\xfe", kind="file", owner="n1", version=3, closed_at_ns=-5,
    size_bytes=3, crcs=b"abcd", xattrs={b"user.\xff": b"\0"}, target=b"\x80",
)  # fmt: skip
STREAM: list[tuple[m.Message, bytes]] = [
    (m.Hello("n1", b"n" * 32, b"s" * 16), b""),
    (m.Offer(1, REPLICA), b""),
    (m.Data(1, 0, 3), b"abc"),
    (m.Data(1, 1, 300), bytes(300)),
    (m.Commit(1), b""),
    (m.Listing(2, [REPLICA, REPLICA], more=False), b""),
    (m.Data(1, 2, 1), b"x"),
]


def encoded() -> bytes:
    sender = Connection()
    frames = [sender.send(message, len(payload)) + payload for message, payload in STREAM]
    return sender.preface() + b"".join(frames)


def received(portions: list[bytes]) -> list[tuple[m.Message, bytes]]:
    """What a receiver makes of these portions; the payload comes in by both of its ways."""
    receiver = Connection()
    frames: list[tuple[m.Message, bytes]] = []
    payload = bytearray()
    for portion in portions:
        rest = memoryview(portion)
        if receiver.payload_left:
            direct = rest[: receiver.payload_left]
            payload += direct
            receiver.payload_placed(len(direct))
            rest = rest[len(direct) :]
        receiver.receive_data(rest)
        while True:
            if receiver.payload_left:
                buffer = bytearray(receiver.payload_left)
                payload += buffer[: receiver.take_payload(memoryview(buffer))]
                if receiver.payload_left:
                    break
            if frames and isinstance(frames[-1][0], m.Data) and not frames[-1][1]:
                frames[-1] = (frames[-1][0], bytes(payload))
                payload.clear()
            event = receiver.next_event()
            if event is NEED_DATA:
                break
            assert isinstance(event, Frame)
            frames.append((event.message, b""))
    return frames


@given(st.lists(st.integers(0, len(encoded()))))
def test_any_split_of_the_stream_gives_the_same_frames(cuts: list[int]) -> None:
    data = encoded()
    places = [0, *sorted(cuts), len(data)]
    portions = [data[a:b] for a, b in itertools.pairwise(places)]
    assert received(portions) == STREAM


@given(st.binary(max_size=300), st.booleans())
def test_random_bytes_raise_nothing_but_a_remote_error(data: bytes, with_preface: bool) -> None:
    receiver = Connection()
    receiver.receive_data((receiver.preface() if with_preface else b"") + data)
    with contextlib.suppress(RemoteProtocolError):
        while isinstance(event := receiver.next_event(), Frame):
            receiver.take_payload(memoryview(bytearray(event.payload_bytes)))
            if receiver.payload_left:
                break


@given(st.binary(max_size=200))
def test_a_random_header_raises_nothing_but_a_remote_error(header: bytes) -> None:
    receiver = Connection()
    lengths = len(header).to_bytes(4, "big") + bytes(4)
    receiver.receive_data(receiver.preface() + lengths + header)
    with contextlib.suppress(RemoteProtocolError):
        receiver.next_event()


@given(st.integers(0, len(encoded()) - 1), st.integers(1, 255))
def test_a_bent_byte_raises_nothing_but_a_remote_error(place: int, bend: int) -> None:
    data = bytearray(encoded())
    data[place] ^= bend
    with contextlib.suppress(RemoteProtocolError):
        received([bytes(data)])


def test_another_version_is_refused_with_both_named() -> None:
    receiver = Connection()
    receiver.receive_data(Connection(version=7).preface())
    with pytest.raises(RemoteProtocolError, match=r"version 7 .* this side version 3"):
        receiver.next_event()


@pytest.mark.parametrize(
    ("header_bytes", "payload_bytes"), [(4097, 0), (2**32 - 1, 0), (10, MAX_PAYLOAD_BYTES + 1)]
)
def test_an_absurd_length_is_refused_before_its_bytes_arrive(
    header_bytes: int, payload_bytes: int
) -> None:
    receiver = Connection()
    lengths = header_bytes.to_bytes(4, "big") + payload_bytes.to_bytes(4, "big")
    receiver.receive_data(receiver.preface() + lengths)
    with pytest.raises(RemoteProtocolError, match="at most"):
        receiver.next_event()


def test_a_remote_error_stays() -> None:
    receiver = Connection()
    receiver.receive_data(b"HTTP/1.1 400")
    for _ in range(2):
        with pytest.raises(RemoteProtocolError, match="does not speak"):
            receiver.next_event()


def test_what_is_illegal_here_raises_and_changes_nothing() -> None:
    sender, receiver = Connection(), Connection()
    with pytest.raises(LocalProtocolError):
        sender.send(m.Commit(1), 5)
    with pytest.raises(LocalProtocolError):
        sender.send(m.Data(1, 0, 5), MAX_PAYLOAD_BYTES + 1)
    receiver.receive_data(sender.preface() + sender.send(m.Data(1, 0, 5), 5) + b"ab")
    assert receiver.next_event() == (m.Data(1, 0, 5), 5)
    with pytest.raises(LocalProtocolError, match="5 bytes of payload"):
        receiver.next_event()
    with pytest.raises(LocalProtocolError, match="not taken"):
        receiver.payload_placed(1)
    assert receiver.take_payload(memoryview(bytearray(5))) == 2
    with pytest.raises(LocalProtocolError):
        receiver.payload_placed(4)
    receiver.payload_placed(3)
    assert receiver.next_event() is NEED_DATA


@pytest.mark.parametrize(
    "message", [m.Ack(-1), m.Ack(2**63), m.Fetch(1, "v", b"p", 1, -1, 2), m.Need(1, [(1, 2)])]
)
def test_counts_that_no_database_could_hold_are_refused(message: m.Message) -> None:
    sender, receiver = Connection(), Connection()
    receiver.receive_data(sender.preface() + sender.send(message))
    if isinstance(message, m.Need):
        assert isinstance(receiver.next_event(), Frame)
        return
    with pytest.raises(RemoteProtocolError):
        receiver.next_event()
