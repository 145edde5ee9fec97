"""The handshake: each side proves that it knows the shared secret, and neither sends it.

    connector                         listener
    Hello(node, nonce, session)  ->
                                 <-   Challenge(node, nonce, proof)
    Proof(proof)                 ->
                                 <-   Welcome

A proof is an HMAC-SHA256 (RFC 2104) over the role of the side that proves, both names, both nonces
and the session, each with its length before it. The role keeps one side's proof from being sent
back to it as its own; the nonces keep an old one from being used again. The keys that seal every
later frame (`wire`) come from the same transcript, under other roles.

No randomness here: the edge brings nonces of `NONCE_BYTES`.
"""

from __future__ import annotations

import hmac
from typing import Literal

from cachexfs.errors import CacheXError
from cachexfs.peers.messages import Challenge, Hello, Message, Proof, Refused, Welcome
from cachexfs.peers.wire import Keys, RemoteProtocolError

NONCE_BYTES = 32
SESSION_BYTES = 16
MAX_NODE_BYTES = 255
"""A host name is no longer (RFC 1035 section 2.3.4)."""
MAX_SAID = 200
"""Characters of another side's sentence that are repeated."""

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
    """What both have: `_transcript` is what was said by the time of the challenge."""

    def __init__(self, role: Role, node: str, nonce: bytes, secret: bytes) -> None:
        self.role: Role = role
        self.state: State = "start"
        self.node = node
        self.other_node = ""
        self._nonce = nonce
        self._secret = secret
        self._transcript: tuple[bytes, ...] = ()

    def keys(self) -> Keys:
        """What the connection is sealed with from the `Welcome` on."""
        theirs = "listener" if self.role == "connector" else "connector"
        return Keys(self._mac(f"key of {self.role}"), self._mac(f"key of {theirs}"))

    def _heard(self, hello: Hello, node: str, nonce: bytes) -> None:
        said = (hello.node.encode(), hello.nonce, hello.session, node.encode(), nonce)
        self._transcript = said

    def _mac(self, role: str) -> bytes:
        parts = (role.encode(), *self._transcript)
        text = b"cachexfs peer 2" + b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hmac.digest(self._secret, text, "sha256")

    def _next_state(self, message: Message) -> State:
        if isinstance(message, Refused):
            said = _printable(f"{message.code}: {message.detail}")
            raise HandshakeFailed(f"the other side refused: {said}")
        key = (self.role, self.state, type(message))
        if key not in TRANSITIONS:
            name = type(message).__name__
            raise RemoteProtocolError(f"{name} makes no sense in the handshake ({self.state})")
        return TRANSITIONS[key]

    def _check(self, proof: bytes, role: Role) -> None:
        if not hmac.compare_digest(proof, self._mac(role)):
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
        self._heard(self.hello(), challenge.node, challenge.nonce)
        self._check(challenge.proof, "listener")
        if self._expected is not None and challenge.node != self._expected:
            raise HandshakeFailed(
                f"the node that answers calls itself {challenge.node}, not {self._expected} "
                "(node.name there, [[peers]] here)"
            )
        return Proof(self._mac("connector"))


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
            self._check(message.proof, "connector")
        self.state = state
        return answer

    def _challenge(self, hello: Hello) -> Challenge:
        _check_greeting(hello.node, hello.nonce)
        if len(hello.session) != SESSION_BYTES:
            raise RemoteProtocolError(f"a session has {SESSION_BYTES} bytes")
        self._hello = hello
        self.other_node = hello.node
        self._heard(hello, self.node, self._nonce)
        return Challenge(self.node, self._nonce, self._mac("listener"))


def _check_greeting(node: str, nonce: bytes) -> None:
    if not 0 < len(node.encode()) <= MAX_NODE_BYTES or not node.isprintable():
        raise RemoteProtocolError("a node's name is empty, too long or cannot be printed")
    if len(nonce) != NONCE_BYTES:
        raise RemoteProtocolError(f"a nonce has {NONCE_BYTES} bytes")


def _printable(said: str) -> str:
    """What may stand in a log and on a terminal, whoever said it."""
    return "".join(letter if letter.isprintable() else "?" for letter in said[:MAX_SAID])
