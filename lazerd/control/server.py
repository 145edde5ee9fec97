"""The control socket: one request line in, one answer line out. Everybody may connect."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import trio

from cachexfs.listening import accept, listening_at, whatever_happens
from lazerd.control.asker import Asker
from lazerd.errors import LazerError

log = logging.getLogger(__name__)

MAX_REQUEST_BYTES = 4 << 20
"""Room for a command with a large environment (ARG_MAX is 2 MiB by default); no more."""
REQUEST_S = 10.0
"""Whoever has connected and does not ask within this time is sent away."""

Verb = Callable[..., Awaitable[Any]]


async def serve(
    path: Path,
    verbs: dict[str, Verb],
    read_asker: Callable[[trio.socket.SocketType], Asker],
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer requests at a Unix socket until cancelled; each verb gets who asks first."""
    with listening_at(path) as listener:
        async with trio.open_nursery() as nursery:
            task_status.started()
            while True:
                stream = await accept(listener)
                if stream is not None:
                    nursery.start_soon(_converse, stream, verbs, read_asker)


async def _converse(
    stream: trio.SocketStream,
    verbs: dict[str, Verb],
    read_asker: Callable[[trio.socket.SocketType], Asker],
) -> None:
    """One request; whatever becomes of it is not the end of the daemon."""
    with whatever_happens():
        async with stream:
            line = b""
            with trio.move_on_after(REQUEST_S):
                line = await _read_line(stream)
            answer = await _answer(line, read_asker(stream.socket), verbs)
            with suppress(trio.BrokenResourceError), trio.move_on_after(REQUEST_S):
                await stream.send_all(msgspec.json.encode(answer) + b"\n")


async def _read_line(stream: trio.SocketStream) -> bytes:
    parts: list[bytes] = []
    while not parts or not parts[-1].endswith(b"\n"):
        part = await stream.receive_some(1 << 16)
        parts.append(part)
        if not part or sum(map(len, parts)) > MAX_REQUEST_BYTES:
            return b""
    return b"".join(parts)


async def _answer(line: bytes, asker: Asker, verbs: dict[str, Verb]) -> dict[str, Any]:
    try:
        request = json.loads(line)
        verb = request.pop("verb")
        call = verbs[verb]
    except (ValueError, KeyError, AttributeError, TypeError):
        return {"error": "UsageError", "detail": "the request is not understood"}
    try:
        return {"answer": await call(asker, **request)}
    except LazerError as error:
        return {"error": type(error).__name__, "detail": str(error)}
    except TypeError as error:
        log.info("%s: %s", verb, error)
        return {"error": "UsageError", "detail": f"{verb}: {error}"}
    except Exception as error:
        log.exception("%s failed", verb)
        return {"error": "LazerError", "detail": f"{verb} failed: {error}"}
