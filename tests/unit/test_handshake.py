"""The handshake, both sides, without a wire."""

from __future__ import annotations

import pytest

from cachexfs.peers.handshake import Connector, HandshakeFailed, Listener
from cachexfs.peers.messages import Challenge, Hello, Message, Ping, Proof, Refused, Welcome
from cachexfs.peers.wire import RemoteProtocolError

SECRET = b"0123456789abcdef"


def connector(
    secret: bytes = SECRET, expected: str | None = None, nonce: bytes = b"c"
) -> Connector:
    return Connector("left", nonce * 32, secret, b"s" * 16, expected)


def listener(secret: bytes = SECRET, nonce: bytes = b"l") -> Listener:
    return Listener("right", nonce * 32, secret)


def joined(left: Connector, right: Listener) -> None:
    challenge = right.handle(left.hello())
    assert challenge is not None
    proof = left.handle(challenge)
    assert proof is not None
    right.handle(proof)
    left.handle(Welcome(1))


def test_one_secret_opens_both_sides_and_each_learns_the_other() -> None:
    left, right = connector(expected="right"), listener()
    joined(left, right)
    assert (left.state, right.state) == ("open", "open")
    assert (left.other_node, right.other_node) == ("right", "left")
    assert right.session == b"s" * 16


def test_the_connector_finds_a_wrong_secret_and_sends_no_proof() -> None:
    left, right = connector(), listener(b"another secret..")
    challenge = right.handle(left.hello())
    assert challenge is not None
    with pytest.raises(HandshakeFailed, match="right does not have the same secret as left"):
        left.handle(challenge)
    assert left.state == "start"
    with pytest.raises(HandshakeFailed, match="the other side refused: BadSecret"):
        right.handle(Refused(0, "BadSecret", "no"))


def test_the_listener_finds_a_wrong_proof() -> None:
    right = listener()
    right.handle(connector().hello())
    with pytest.raises(HandshakeFailed, match="left does not have the same secret as right"):
        right.handle(Proof(b"p" * 32))
    assert right.state == "challenged"


def test_a_proof_sent_back_as_ones_own_opens_nothing() -> None:
    right = listener()
    challenge = right.handle(connector().hello())
    assert isinstance(challenge, Challenge)
    with pytest.raises(HandshakeFailed):
        right.handle(Proof(challenge.proof))


def test_a_recorded_proof_opens_nothing_later() -> None:
    left, first = connector(), listener()
    challenge = first.handle(left.hello())
    assert challenge is not None
    recorded = left.handle(challenge)
    assert recorded is not None
    later = listener(nonce=b"m")
    later.handle(left.hello())
    with pytest.raises(HandshakeFailed):
        later.handle(recorded)


def test_another_node_than_the_expected_is_refused() -> None:
    left = connector(expected="elsewhere")
    challenge = listener().handle(left.hello())
    assert challenge is not None
    with pytest.raises(HandshakeFailed, match="calls itself right, not elsewhere"):
        left.handle(challenge)


@pytest.mark.parametrize(
    "message",
    [Ping(1), Welcome(1), Proof(b""), Hello("", b"c" * 32, b"s" * 16), Hello("n", b"", b"s" * 16),
     Hello("n", b"c" * 32, b""), Hello("n" * 256, b"c" * 32, b"s" * 16),
     Hello("a\nb", b"c" * 32, b"s" * 16), Hello("\x1b[2J", b"c" * 32, b"s" * 16)],
)  # fmt: skip
def test_what_makes_no_sense_is_a_remote_error_and_leaves_the_state(message: Message) -> None:
    right = listener()
    with pytest.raises(RemoteProtocolError):
        right.handle(message)
    assert right.state == "start"


def test_what_a_stranger_says_is_cut_and_harmless_on_a_terminal() -> None:
    left = connector()
    with pytest.raises(HandshakeFailed) as caught:
        left.handle(Refused(0, "BadSecret", "\x1b[2J\n" + "x" * 4000))
    assert str(caught.value).isprintable() and len(str(caught.value)) < 300


def test_each_connection_and_each_direction_has_its_own_key() -> None:
    keys = []
    for nonce in (b"l", b"m"):
        left, right = connector(), listener(nonce=nonce)
        joined(left, right)
        assert left.keys() == tuple(reversed(right.keys()))
        keys += left.keys()
    other = connector(b"another secret..")
    other.handle(Listener("right", b"l" * 32, b"another secret..").handle(other.hello()))  # type: ignore[arg-type]
    assert len({*keys, *other.keys()}) == 6
