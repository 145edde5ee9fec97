"""The handshake at the edge: connect or accept within a time limit, TLS included."""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import trio

from cachexfs.config import split_address
from cachexfs.peers import tls
from cachexfs.peers.handshake import NONCE_BYTES, Connector, HandshakeFailed, Listener
from cachexfs.peers.messages import Refused, Welcome
from cachexfs.peers.stream import Disconnected, FrameStream

HANDSHAKE_S = 5.0
"""Three messages; more means that nobody is there, or a stranger that holds a connection open."""


@dataclass(frozen=True)
class Identity:
    """Who this node is to its peers."""

    node: str
    secret: bytes
    ssl_context: ssl.SSLContext | None = None


async def connect(
    address: str, identity: Identity, session: bytes, expected: str | None
) -> tuple[FrameStream, Welcome, str]:
    """An open connection, the peer's welcome and its name.

    Raises `HandshakeFailed`, `RemoteProtocolError`, `trio.TooSlowError`, `OSError` or one of
    `stream.BROKEN`.
    """
    host, port = split_address(address, "address")
    with trio.fail_after(HANDSHAKE_S):
        transport: trio.abc.Stream = await trio.open_tcp_stream(host, port)
        try:
            with _said_clearly():
                if identity.ssl_context is not None:
                    transport = await _secured(transport, identity.ssl_context, host)
                stream = FrameStream(transport)
                welcome, name = await _prove(stream, identity, session, expected)
        except BaseException:
            await trio.aclose_forcefully(transport)
            raise
    return stream, welcome, name


@contextmanager
def _said_clearly() -> Iterator[None]:
    """How a handshake ends, as a `HandshakeFailed`. Of two sides the one that refuses knows why."""
    try:
        yield
    except (trio.BrokenResourceError, Disconnected) as error:
        cause = error.__cause__
        if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError):
            raise HandshakeFailed(tls.sentence(cause)) from None
        why = "it closed the connection: its log says why"
        raise HandshakeFailed(why) from None


async def _secured(
    transport: trio.abc.Stream, context: ssl.SSLContext, host: str | None
) -> trio.SSLStream[trio.abc.Stream]:
    # HTTPS's way to close spares a round trip; frames show for themselves whether they are whole.
    secured = trio.SSLStream(
        transport,
        context,
        server_hostname=host,
        server_side=host is None,
        https_compatible=True,
    )
    await secured.do_handshake()
    return secured


async def _prove(
    stream: FrameStream, identity: Identity, session: bytes, expected: str | None
) -> tuple[Welcome, str]:
    nonce = secrets.token_bytes(NONCE_BYTES)
    side = Connector(identity.node, nonce, identity.secret, session, expected)
    await stream.greet()
    await stream.send(side.hello())
    while True:
        message = (await stream.receive()).message
        try:
            answer = side.handle(message)
        except HandshakeFailed as error:
            await stream.send(Refused(0, "BadSecret", str(error)))
            raise
        if isinstance(message, Welcome):
            return message, side.other_node
        if answer is not None:
            await stream.send(answer)
            stream.seal(side.keys())


async def accept(transport: trio.abc.Stream, identity: Identity) -> tuple[FrameStream, Listener]:
    """Let the other side prove itself; the caller then sends `Welcome`.

    Raises as `connect`; the transport stays the caller's.
    """
    with trio.fail_after(HANDSHAKE_S), _said_clearly():
        if identity.ssl_context is not None:
            transport = await _secured(transport, identity.ssl_context, None)
        stream = FrameStream(transport)
        await stream.greet()
        side = Listener(identity.node, secrets.token_bytes(NONCE_BYTES), identity.secret)
        while side.state != "open":
            await _answer(stream, side)
    stream.seal(side.keys())
    return stream, side


async def _answer(stream: FrameStream, side: Listener) -> None:
    message = (await stream.receive()).message
    try:
        answer = side.handle(message)
    except HandshakeFailed as error:
        if not isinstance(message, Refused):
            await stream.send(Refused(0, "BadSecret", str(error)))
        raise
    if answer is not None:
        await stream.send(answer)
