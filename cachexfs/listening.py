"""Taking connections at a Unix socket that everybody on the node may ask. Both daemons have one.

Nothing that happens at it is the end of a daemon: not a conversation that breaks off, and not that
no descriptor is left.
"""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

from cachexfs.client import short_path

log = logging.getLogger(__name__)

BACKLOG = 256
EXHAUSTED_S = 0.1
"""No descriptor is left: how long until a connection is taken again."""

_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
"""Of accept(2): what passes."""


@contextmanager
def listening_at(path: Path) -> Iterator[trio.socket.SocketType]:
    """A socket at `path`, in place of what an earlier daemon left there. Raises OSError."""
    path.unlink(missing_ok=True)
    with short_path(path) as address, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(address)
        path.chmod(0o666)
        listener.listen(BACKLOG)
        try:
            yield trio.socket.from_stdlib_socket(listener)
        finally:
            path.unlink(missing_ok=True)


async def accept(listener: trio.socket.SocketType) -> trio.SocketStream | None:
    """The next connection; None after a while where none can be taken. Raises OSError."""
    try:
        connection, _ = await listener.accept()
    except OSError as error:
        if error.errno not in _EXHAUSTED:
            raise
        log.error("no connection can be taken at the control socket: %s", error)
        await trio.sleep(EXHAUSTED_S)
        return None
    return trio.SocketStream(connection)


@contextmanager
def whatever_happens() -> Iterator[None]:
    """Around one conversation: its end is no more than a line in the log."""
    try:
        yield
    except Exception as error:  # an ExceptionGroup of what a broken connection raises, mostly
        log.info("a conversation at the control socket ended: %r", error)
