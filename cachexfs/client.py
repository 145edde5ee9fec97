"""Asking a running daemon: one JSON line out, one JSON line back, over its Unix socket.

Plain blocking sockets: `cachexfs status` must answer faster than an event loop can be imported.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from cachexfs.errors import CacheXError, NoSuchMount, NotRunning, TimedOut

SOCKET_NAME = "control.sock"
_CONTROL = "user.cachexfs.control"
ANSWER_S = 5.0
"""A daemon that is alive answers a report in milliseconds."""

_ERRORS: dict[str, type[CacheXError]] = {
    "TimedOut": TimedOut,
    "NoSuchMount": NoSuchMount,
}


class Client:
    """One daemon, by its socket. Raises `NotRunning`, and the errors that the daemon answers."""

    def __init__(self, socket_path: Path, mountpoint: str = "") -> None:
        self.socket_path = socket_path
        self.mountpoint = mountpoint

    def ask(self, verb: str, *, patience_s: float | None = ANSWER_S, **arguments: Any) -> Any:
        """Send a request and wait for its answer; `patience_s` None waits for ever."""
        try:
            answer = exchange(self.socket_path, {"verb": verb, **arguments}, patience_s)
        except TimeoutError:
            raise TimedOut(f"{self._who()} does not answer") from None
        except OSError as error:
            raise NotRunning(f"{self._who()} is not running: {error.strerror}") from None
        return _unpack(answer, self._who())

    def _who(self) -> str:
        return f"the daemon of {self.mountpoint or self.socket_path.parent.name}"


def exchange(socket_path: Path, request: dict[str, Any], patience_s: float | None) -> bytes:
    """One line of JSON out, one line back. `patience_s`: for each step; None waits for ever.

    Raises TimeoutError, and OSError where nobody listens or the answer breaks off.
    """
    with (
        short_path(socket_path) as address,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link,
    ):
        link.settimeout(patience_s)
        link.connect(address)
        link.sendall(json.dumps(request).encode() + b"\n")
        return _read_line(link)


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """The same path, short enough for a socket's address (108 bytes, unix(7)). Raises OSError."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def of_path(path: str) -> tuple[Client, str]:
    """The daemon of the mount that a path is on, and the path below its root ("" for the root).

    Works for paths that do not exist, as long as a directory above does. Raises `NoSuchMount`.
    """
    absolute = os.path.abspath(path)
    existing = absolute
    while True:
        found = _control_of(existing)
        if found is not None:
            break
        if existing == "/":
            raise NoSuchMount(f"{path} is not on a mount of CacheX-FS")
        existing = os.path.dirname(existing)
    client = Client(Path(found["socket"]), found["mountpoint"])
    return client, _below(absolute, found["mountpoint"], path)


def all_mounts(state_dir: Path) -> list[Client]:
    """The daemons with a state directory below `state_dir`, running or not."""
    return [Client(path) for path in sorted(state_dir.glob(f"*/{SOCKET_NAME}"))]


def _below(absolute: str, mountpoint: str, path: str) -> str:
    for candidate in (
        absolute,
        os.path.realpath(os.path.dirname(absolute)) + "/" + os.path.basename(absolute),
    ):
        if candidate == mountpoint:
            return ""
        if candidate.startswith(mountpoint + "/"):
            return candidate[len(mountpoint) + 1 :]
    raise NoSuchMount(f"{path} is not below {mountpoint}")


def _control_of(path: str) -> dict[str, str] | None:
    """What the mount says of its daemon; None when the path is on no mount of ours."""
    found = _patient_getxattr(path)
    if found is None:
        raise NotRunning(f"{path}: the daemon of this mount does not answer")
    if isinstance(found, int):
        if found == errno.ENOTCONN:
            raise NotRunning(f"{path}: the daemon of this mount is not running")
        return None
    return _as_control(found)


def _patient_getxattr(path: str) -> bytes | int | None:
    """The control attribute, or the errno instead; None when no answer comes in time.

    A child asks: a request that a frozen daemon has read cannot be interrupted, not even by
    SIGKILL, so whoever waits for it must be somebody who can be left behind.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _ask_and_exit(path, writer)
    os.close(writer)
    try:
        if not select.select([reader], [], [], ANSWER_S)[0]:
            os.kill(child, signal.SIGKILL)
            return None
        answer = os.read(reader, 1 << 16)
    finally:
        os.close(reader)
    os.waitpid(child, 0)
    return answer[1:] if answer[:1] == b"+" else int(answer[1:] or errno.EIO)


def _ask_and_exit(path: str, writer: int) -> NoReturn:
    try:
        answer = b"+" + os.getxattr(path, _CONTROL, follow_symlinks=False)
    except OSError as error:
        answer = b"-%d" % (error.errno or errno.EIO)
    os.write(writer, answer)
    os._exit(0)


def _as_control(value: bytes) -> dict[str, str] | None:
    with contextlib.suppress(ValueError):
        answer = json.loads(value)
        if isinstance(answer, dict):
            return {str(key): str(text) for key, text in answer.items()}
    return None


def _read_line(link: socket.socket) -> bytes:
    parts: list[bytes] = []
    while not parts or not parts[-1].endswith(b"\n"):
        part = link.recv(1 << 20)
        if not part:
            raise ConnectionResetError(errno.ECONNRESET, "it ended before it answered")
        parts.append(part)
    return b"".join(parts)


def _unpack(answer: bytes, who: str) -> Any:
    try:
        fields = json.loads(answer)
    except ValueError:
        raise CacheXError(f"{who} answers nonsense") from None
    if "error" in fields:
        raise _ERRORS.get(fields["error"], CacheXError)(fields.get("detail", fields["error"]))
    return fields["answer"]
