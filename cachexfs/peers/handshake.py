"""The handshake: each side proves that it knows the shared secret, and neither sends it.

    connector                         listener
    Hello(node, nonce, session)  ->
                                 <-   Challenge(node, nonce, proof)
    Proof(proof)                 ->
                                 <-   Welcome

A proof is an HMAC-SHA256 (RFC 2104) over the role of the side that proves, both names, both nonces
and the session, each with its length before it. The role keeps one side's proof from being sent
back to it as its own; the nonces keep an old one from being used again. Without TLS this proves who
opened the connection, and does not protect what follows against someone on the path.

No randomness here: the edge brings nonces of `NONCE_BYTES`.
"""

from __future__ import annotations

import hmac
from typing import Literal

from cachexfs.errors import CacheXError
from cachexfs.peers.messages import Challenge, Hello, Message, Proof, Refused, Welcome
from cachexfs.peers.wire import RemoteProtocolError

NONCE_BYTES = 32
SESSION_BYTES = 16
MAX_NODE_BYTES = 255
"""A host name is no longer (RFC 1035 section 2.3.4)."""

State = Literal["start", "challenged", "proven", "open"]
Role = Literal["connector", "listener"]

TRANSITIONS: dict[tuple[Role, State, type[Message]], State] = {
    ("connector", "start", Challenge): "proven",
    ("connector", "proven", Welcome): "open",
    ("listener", "start", Hello): "challenged",
    ("listener", "challenged", Proof): "open",
}
"""Which message a side accepts in which state, and where that leads. All else is an error."""


class HandshakeFailed(CacheXError):
    """The other side is not who it should be: another secret, or another node."""


class _Side:
    def __init__(self, role: Role, node: str, nonce: bytes, secret: bytes) -> None:
        self.role: Role = role
        self.state: State = "start"
        self.node = node
        self.other_node = ""
        self._nonce = nonce
        self._secret = secret

    def _next_state(self, message: Message) -> State:
        if isinstance(message, Refused):
            raise HandshakeFailed(f"the other side refused: {message.code}: {message.detail}")
        key = (self.role, self.state, type(message))
        if key not in TRANSITIONS:
            name = type(message).__name__
            raise RemoteProtocolError(f"{name} makes no sense in the handshake ({self.state})")
        return TRANSITIONS[key]

    def _check(self, proof: bytes, expected: bytes) -> None:
        if not hmac.compare_digest(proof, expected):
            raise HandshakeFailed(
                f"{self.other_node or 'the other side'} does not have the same secret as "
                f"{self.node} (security.secret_file)"
            )


class Connector(_Side):
    """The side that connects. `expected` is the name that the listener must have, if any."""

    def __init__(
        self, node: str, nonce: bytes, secret: bytes, session: bytes, expected: str | None = None
    ) -> None:
        super().__init__("connector", node, nonce, secret)
        self._session = session
        self._expected = expected

    def hello(self) -> Hello:
        """The first message."""
        return Hello(self.node, self._nonce, self._session)

    def handle(self, message: Message) -> Message | None:
        """What to answer. Raises `HandshakeFailed`, `RemoteProtocolError`; the state stays then."""
        state = self._next_state(message)
        answer = self._prove(message) if isinstance(message, Challenge) else None
        self.state = state
        return answer

    def _prove(self, challenge: Challenge) -> Proof:
        _check_greeting(challenge.node, challenge.nonce)
        self.other_node = challenge.node
        transcript = (self.hello(), challenge.node, challenge.nonce)
        self._check(challenge.proof, _mac(self._secret, "listener", *transcript))
        if self._expected is not None and challenge.node != self._expected:
            raise HandshakeFailed(
                f"the node that answers calls itself {challenge.node}, not {self._expected} "
                "(node.name there, [[peers]] here)"
            )
        return Proof(_mac(self._secret, "connector", *transcript))


class Listener(_Side):
    """The side that was connected to. When `state` is "open", the edge sends `Welcome`."""

    def __init__(self, node: str, nonce: bytes, secret: bytes) -> None:
        super().__init__("listener", node, nonce, secret)
        self._hello = Hello("", b"", b"")

    @property
    def session(self) -> bytes:
        """The connector's session."""
        return self._hello.session

    def handle(self, message: Message) -> Message | None:
        """What to answer. Raises `HandshakeFailed`, `RemoteProtocolError`; the state stays then."""
        state = self._next_state(message)
        answer = self._challenge(message) if isinstance(message, Hello) else None
        if isinstance(message, Proof):
            self._check(message.proof, self._proof("connector"))
        self.state = state
        return answer

    def _challenge(self, hello: Hello) -> Challenge:
        _check_greeting(hello.node, hello.nonce)
        if len(hello.session) != SESSION_BYTES:
            raise RemoteProtocolError(f"a session has {SESSION_BYTES} bytes")
        self._hello = hello
        self.other_node = hello.node
        return Challenge(self.node, self._nonce, self._proof("listener"))

    def _proof(self, role: Role) -> bytes:
        return _mac(self._secret, role, self._hello, self.node, self._nonce)


def _check_greeting(node: str, nonce: bytes) -> None:
    if not 0 < len(node.encode()) <= MAX_NODE_BYTES:
        raise RemoteProtocolError("a node's name is empty or too long")
    if len(nonce) != NONCE_BYTES:
        raise RemoteProtocolError(f"a nonce has {NONCE_BYTES} bytes")


def _mac(secret: bytes, role: Role, hello: Hello, node: str, nonce: bytes) -> bytes:
    parts = [role.encode(), hello.node.encode(), hello.nonce, hello.session, node.encode(), nonce]
    text = b"cachexfs peer 1" + b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return hmac.digest(secret, text, "sha256")
