"""The sensors' protocol without a network: proofs, seals, lengths, and whatever bytes may come."""

from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazerd.sensor.command import parse_address
from lazerd.sensor.errors import AddressError, HandshakeFailed, ProtocolError, SecretError
from lazerd.sensor.handshake import LazerdSide, SensorSide
from lazerd.sensor.messages import (
    NONCE_BYTES,
    VERSION,
    Challenge,
    Hello,
    Message,
    Proof,
    Received,
    Rejected,
    Report,
    Welcome,
)
from lazerd.sensor.reading import GpuReading, Health, Process, Reading
from lazerd.sensor.secret import read_secret
from lazerd.sensor.wire import MAX_BODY_BYTES, MAX_GREETING_BYTES, Wire

SECRET = b"0123456789abcdef"
A, B, C = b"a" * NONCE_BYTES, b"b" * NONCE_BYTES, b"c" * NONCE_BYTES


def greet(
    secret: bytes = SECRET, nonce: bytes = A, answer: bytes = B
) -> tuple[SensorSide, LazerdSide]:
    sensor, lazerd = SensorSide("gpu-1", nonce, SECRET), LazerdSide(answer, secret)
    challenge = lazerd.handle(sensor.hello())
    assert challenge is not None
    proof = sensor.handle(challenge)
    assert proof is not None
    assert lazerd.handle(proof) is None
    assert sensor.handle(Welcome()) is None
    return sensor, lazerd


def sealed() -> tuple[Wire, Wire]:
    sensor, lazerd = greet()
    a, b = Wire(), Wire()
    a.seal(sensor.keys())
    b.seal(lazerd.keys())
    return a, b


def report(seq: int = 1) -> Report:
    process = Process(7, "42", 1 << 30, 99)
    gpus = (GpuReading(0, "G", processes=(process,)), GpuReading(1, health=Health.LOST))
    return Report(seq, Reading(gpus))


def test_both_sides_prove_the_secret() -> None:
    sensor, lazerd = greet()
    assert (sensor.state, lazerd.state, lazerd.node) == ("open", "open", "gpu-1")
    assert sensor.keys().outward == lazerd.keys().inward != sensor.keys().inward


def test_lazerd_with_another_secret_gets_no_report() -> None:
    with pytest.raises(HandshakeFailed):
        greet(b"another secret!!")


def test_a_sensor_with_another_secret_is_refused() -> None:
    lazerd = LazerdSide(B, SECRET)
    assert lazerd.handle(Hello(VERSION, "gpu-1", A)) is not None
    with pytest.raises(HandshakeFailed):
        lazerd.handle(Proof(b"x" * 32))
    assert lazerd.state == "challenged"


def test_a_recorded_handshake_is_of_no_use() -> None:
    sensor, recorded = SensorSide("gpu-1", A, SECRET), LazerdSide(B, SECRET)
    challenge = recorded.handle(sensor.hello())
    assert isinstance(challenge, Challenge)
    proof = sensor.handle(challenge)
    assert isinstance(proof, Proof)
    later = LazerdSide(C, SECRET)
    later.handle(sensor.hello())
    with pytest.raises(HandshakeFailed):
        later.handle(proof)


def test_lazerds_proof_cannot_be_sent_back_as_the_sensors() -> None:
    lazerd = LazerdSide(B, SECRET)
    challenge = lazerd.handle(Hello(VERSION, "gpu-1", A))
    assert isinstance(challenge, Challenge)
    with pytest.raises(HandshakeFailed):
        lazerd.handle(Proof(challenge.proof))


def test_another_version_is_one_sentence() -> None:
    with pytest.raises(ProtocolError, match="run the same release"):
        LazerdSide(B, SECRET).handle(Hello(VERSION + 1, "gpu-1", A))


@pytest.mark.parametrize("message", [Welcome(), report(), Proof(b"x" * 32), Received(1)])
def test_nothing_may_come_before_hello(message: Message) -> None:
    with pytest.raises(ProtocolError):
        LazerdSide(B, SECRET).handle(message)


def test_frames_arrive_whole_in_any_portion() -> None:
    a, b = sealed()
    data = a.send(report(1)) + a.send(report(2))
    got: list[Message] = []
    for n in range(0, len(data), 7):
        b.receive(data[n : n + 7])
        got += b.messages()
    assert got == [report(1), report(2)]


def test_a_repeated_frame_is_refused() -> None:
    a, b = sealed()
    data = a.send(report())
    b.receive(data + data)
    assert b.next_message() == report()
    with pytest.raises(ProtocolError):
        b.next_message()


def test_a_frame_that_is_left_out_is_noticed() -> None:
    a, b = sealed()
    a.send(report(1))
    b.receive(a.send(report(2)))
    with pytest.raises(ProtocolError):
        b.next_message()


def test_a_frame_cannot_be_sent_back() -> None:
    a, _ = sealed()
    a.receive(a.send(report()))
    with pytest.raises(ProtocolError):
        a.next_message()


@pytest.mark.parametrize("length", [MAX_GREETING_BYTES + 1, 1 << 31, (1 << 32) - 1])
def test_a_stranger_cannot_announce_much(length: int) -> None:
    wire = Wire()
    wire.receive(struct.pack("!I", length))
    with pytest.raises(ProtocolError, match="announced"):
        wire.next_message()


def test_nobody_can_announce_what_is_absurd() -> None:
    _, wire = sealed()
    wire.receive(struct.pack("!I", MAX_BODY_BYTES + 1))
    with pytest.raises(ProtocolError, match="announced"):
        wire.next_message()


def test_the_largest_sensible_report_fits() -> None:
    processes = tuple(Process(n, "123456789", 1 << 40, 100) for n in range(200))
    gpus = tuple(GpuReading(n, f"GPU-{n:036}", processes=processes) for n in range(16))
    a, b = sealed()
    b.receive(a.send(Report(1, Reading(gpus))))
    assert b.next_message() is not None


@pytest.mark.parametrize(
    "body",
    [
        {"type": "report", "seq": -1, "reading": {}},
        {"type": "report", "seq": 1, "reading": {"gpus": [{"index": -5}]}},
        {"type": "report", "seq": 1, "reading": {"gpus": [{"index": 0, "health": "great"}]}},
        {"type": "report", "seq": 1, "reading": {"problem": "x" * 600}},
        {"type": "hello", "version": 1, "node": "", "nonce": A},
        {"type": "hello", "version": 1, "node": "x" * 300, "nonce": A},
        {"type": "hello", "version": 1, "node": "x", "nonce": b"short"},
        {"type": "do", "command": "rm"},
        [1, 2],
    ],
)
def test_what_is_no_message_is_refused(body: object) -> None:
    data = msgspec.msgpack.encode(body)
    wire = Wire()
    wire.receive(struct.pack("!I", len(data)) + data)
    with pytest.raises(ProtocolError, match="no message"):
        wire.next_message()


@given(st.lists(st.binary(max_size=200), max_size=5), st.booleans())
def test_any_bytes_end_in_a_message_or_a_protocol_error(
    portions: list[bytes], is_sealed: bool
) -> None:
    wire = sealed()[1] if is_sealed else Wire()
    with suppress(ProtocolError):
        for portion in portions:
            wire.receive(portion)
            assert not is_sealed or wire.next_message() is None
            wire.next_message()


@given(st.binary(max_size=300))
def test_any_body_in_a_good_frame(body: bytes) -> None:
    wire = Wire()
    wire.receive(struct.pack("!I", len(body)) + body)
    with suppress(ProtocolError):
        wire.next_message()


@given(st.data())
def test_no_changed_byte_gets_through_a_seal(data: st.DataObject) -> None:
    a, b = sealed()
    frame = bytearray(a.send(report()))
    place = data.draw(st.integers(4, len(frame) - 1))
    frame[place] ^= data.draw(st.integers(1, 255))
    b.receive(frame)
    with pytest.raises(ProtocolError):
        b.next_message()


@pytest.mark.parametrize("message", [Rejected("no"), Received(3), Welcome(), report()])
def test_messages_come_back_as_they_were(message: Message) -> None:
    a, b = sealed()
    b.receive(a.send(message))
    assert b.next_message() == message


def test_the_secret_is_the_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "secret"
    with pytest.raises(SecretError, match="cannot read"):
        read_secret(file)
    file.write_bytes(b"  " + SECRET + b"\n")
    file.chmod(0o640)
    with pytest.raises(SecretError, match="chmod 600"):
        read_secret(file)
    file.chmod(0o600)
    assert read_secret(file) == SECRET
    file.write_bytes(b"short\n")
    with pytest.raises(SecretError, match="shorter"):
        read_secret(file)
    file.write_bytes(SECRET)
    file.chmod(0o440)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert read_secret(file) == SECRET


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("head", ("head", 7430)),
        ("head:1234", ("head", 1234)),
        ("[::1]:1234", ("::1", 1234)),
        ("[::1]", ("::1", 7430)),
        ("10.0.0.1:80", ("10.0.0.1", 80)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", ":", "head:", "head:x", "head:70000", "head:0", ":80"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(AddressError):
        parse_address(text)
