"""The control socket: one request line in, one answer line out.

Everybody on the node may ask; only root and the daemon's own user may change anything. The kernel
says who asks (SO_PEERCRED). Other users have `MAX_OF_USER` questions each, so that none of them can
use up the daemon's descriptors.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import trio

from cachexfs.errors import CacheXError
from cachexfs.listening import accept, listening_at, whatever_happens

log = logging.getLogger(__name__)

CHANGING = frozenset({"evict", "pin", "unpin", "recover", "handover"})
"""Verbs that not everybody may use."""

MAX_REQUEST_BYTES = 4 << 20
"""Room for a long list of paths; whoever sends more is not one of our commands."""

MAX_OF_USER = 128
"""Questions of one user at a time: `cachexfs wait` is one for as long as it waits."""
REQUEST_S = 10.0
"""Whoever has connected and does not ask within this time is sent away."""

Verbs = dict[str, Callable[..., Awaitable[Any]]]

_BUSY = {
    "error": "Busy",
    "detail": f"{MAX_OF_USER} questions of this user are being answered",
}
_SECTION = struct.Struct("iII")
"""struct ucred of linux/socket.h: pid, uid, gid."""


async def serve(
    path: Path,
    verbs: Verbs,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer requests at a Unix socket until cancelled."""
    open_of = Counter[int]()
    with listening_at(path) as listener:
        async with trio.open_nursery() as nursery:
            task_status.started()
            while True:
                stream = await accept(listener)
                if stream is not None:
                    nursery.start_soon(_converse, stream, verbs, open_of)


async def _converse(stream: trio.SocketStream, verbs: Verbs, open_of: Counter[int]) -> None:
    """One request; given up when the asker goes away first, and never the end of the daemon."""
    with whatever_happens():
        async with stream:
            uid = _asker(stream)
            open_of[uid] += 1
            try:
                await _reply(stream, uid, {} if _is_busy(open_of, uid) else verbs)
            finally:
                open_of[uid] -= 1


def _is_busy(open_of: Counter[int], uid: int) -> bool:
    return not _may_change(uid) and open_of[uid] > MAX_OF_USER


def _may_change(uid: int) -> bool:
    return uid in (0, os.geteuid())


async def _reply(stream: trio.SocketStream, uid: int, verbs: Verbs) -> None:
    """Read the request and send the answer; without `verbs`, only that there are too many."""
    request = None
    with trio.move_on_after(REQUEST_S):
        request = await _read_line(stream)
    if request is None:
        return
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cancel_at_end, stream, nursery.cancel_scope)
        answer = await _answer(request, uid, verbs) if verbs else _BUSY
        with suppress(trio.BrokenResourceError):
            await stream.send_all(json.dumps(answer).encode() + b"\n")
        nursery.cancel_scope.cancel()


async def _cancel_at_end(stream: trio.SocketStream, scope: trio.CancelScope) -> None:
    with suppress(trio.BrokenResourceError):
        while await stream.receive_some(1024):
            pass
    scope.cancel()


async def _read_line(stream: trio.SocketStream) -> bytes | None:
    line = bytearray()
    while not line.endswith(b"\n"):
        part = await stream.receive_some(1 << 16)
        if not part or len(line) > MAX_REQUEST_BYTES:
            return None
        line += part
    return bytes(line)


def _asker(stream: trio.SocketStream) -> int:
    """The uid of who asks."""
    packed = stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _SECTION.size)
    return int(_SECTION.unpack(packed)[1])


async def _answer(line: bytes, uid: int, verbs: Verbs) -> dict[str, Any]:
    try:
        request = json.loads(line)
        verb = request.pop("verb")
        call = verbs[verb]
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return {"error": "UsageError", "detail": "the request is not understood"}
    if verb in CHANGING and not _may_change(uid):
        return {"error": "NotAllowed", "detail": f"only root may {verb}"}
    try:
        return {"answer": await call(**request)}
    except CacheXError as error:
        return {"error": type(error).__name__, "detail": str(error)}
    except TypeError as error:
        return {"error": "UsageError", "detail": str(error)}
    except Exception as error:
        log.exception("%s failed", verb)
        return {"error": "Failed", "detail": f"{verb} failed: {error}"}
