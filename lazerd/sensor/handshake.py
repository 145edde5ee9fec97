"""Pure: each side proves that it has the shared secret, and neither sends it.

A proof is an HMAC-SHA256 (RFC 2104) over the role of the side that proves, the node's name and both
nonces, each with its length before it. The role keeps one side's proof from being sent back to it
as its own; the nonces keep an old one from being used again. The keys that seal the connection come
from the same transcript, under other roles.

No randomness here: the edge brings nonces of `NONCE_BYTES`.
"""

from __future__ import annotations

import hmac
from typing import Literal

from lazerd.sensor.errors import HandshakeFailed, ProtocolError
from lazerd.sensor.messages import VERSION, Challenge, Hello, Message, Proof, Welcome
from lazerd.sensor.wire import Keys

Role = Literal["sensor", "lazerd"]
State = Literal["start", "challenged", "proven", "open"]

TRANSITIONS: dict[tuple[Role, State, type[Message]], State] = {
    ("lazerd", "start", Hello): "challenged",
    ("lazerd", "challenged", Proof): "open",
    ("sensor", "start", Challenge): "proven",
    ("sensor", "proven", Welcome): "open",
}
"""Which message a side accepts in which state, and where that leads. All else is an error."""


class _Side:
    def __init__(self, role: Role, secret: bytes) -> None:
        self.state: State = "start"
        self._role: Role = role
        self._secret = secret
        self._transcript: tuple[bytes, ...] = ()

    def keys(self) -> Keys:
        """What the connection is sealed with once its state is "open"."""
        ours, theirs = ("sensor", "lazerd") if self._role == "sensor" else ("lazerd", "sensor")
        return Keys(self._mac(f"key of {ours}"), self._mac(f"key of {theirs}"))

    def _next_state(self, message: Message) -> State:
        state = TRANSITIONS.get((self._role, self.state, type(message)))
        if state is None:
            name = type(message).__name__
            raise ProtocolError(f"{name} makes no sense in the handshake ({self.state})")
        return state

    def _check(self, proof: bytes, role: Role) -> None:
        if not hmac.compare_digest(proof, self._mac(role)):
            raise HandshakeFailed("the other side does not have the same secret (the secret file)")

    def _mac(self, role: str) -> bytes:
        parts = (role.encode(), *self._transcript)
        text = b"lazer sensor 1" + b"".join(len(p).to_bytes(4, "big") + p for p in parts)
        return hmac.digest(self._secret, text, "sha256")


class SensorSide(_Side):
    """The side that connects."""

    def __init__(self, node: str, nonce: bytes, secret: bytes) -> None:
        super().__init__("sensor", secret)
        self._hello = Hello(VERSION, node, nonce)

    def hello(self) -> Hello:
        """The first message."""
        return self._hello

    def handle(self, message: Message) -> Message | None:
        """What to answer. `HandshakeFailed`, `ProtocolError`; the state stays then."""
        state = self._next_state(message)
        answer = None
        if isinstance(message, Challenge):
            self._transcript = (self._hello.node.encode(), self._hello.nonce, message.nonce)
            self._check(message.proof, "lazerd")
            answer = Proof(self._mac("sensor"))
        self.state = state
        return answer


class LazerdSide(_Side):
    """The side that was connected to. When its state is "open" the edge sends `Welcome`."""

    def __init__(self, nonce: bytes, secret: bytes) -> None:
        super().__init__("lazerd", secret)
        self.node = ""
        self._nonce = nonce

    def handle(self, message: Message) -> Message | None:
        """What to answer. `HandshakeFailed`, `ProtocolError`; the state stays then."""
        state = self._next_state(message)
        answer = None
        if isinstance(message, Hello):
            answer = self._challenge(message)
        elif isinstance(message, Proof):
            self._check(message.proof, "sensor")
        self.state = state
        return answer

    def _challenge(self, hello: Hello) -> Challenge:
        if hello.version != VERSION:
            raise ProtocolError(
                f"the sensor of {hello.node} speaks version {hello.version}, lazerd version "
                f"{VERSION}: run the same release on both"
            )
        self.node = hello.node
        self._transcript = (hello.node.encode(), hello.nonce, self._nonce)
        return Challenge(self._nonce, self._mac("lazerd"))
