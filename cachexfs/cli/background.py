"""Starting a daemon in a session of its own, and waiting until it says that it is ready."""

from __future__ import annotations

import logging
import os
import select
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import BinaryIO

from cachexfs.errors import CacheXError, UsageError

if sys.version_info < (3, 11):
    from exceptiongroup import BaseExceptionGroup

READY_S = 30.0
"""A daemon is ready in well under a second; a file system in trouble may take longer."""


def start_in_background(arguments: list[str], log: Path) -> None:
    """Run `cachexfs ARGUMENTS -f --ready-fd N`; returns when it is ready.

    Its output goes to `log`. Raises `CacheXError` with what it said, when it ended instead.
    """
    try:
        output = open_log(log)
        begin = os.fstat(output.fileno()).st_size
    except OSError as error:
        raise CacheXError(f"{log}: {error.strerror}") from None
    reader, writer = os.pipe()
    command = [sys.executable, "-m", "cachexfs", *arguments, "-f", "--ready-fd", str(writer)]
    with output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[writer],
            start_new_session=True,
            cwd="/",
        )
    os.close(writer)
    if not _became_ready(reader):
        why = _why(child, log, begin)
        raise UsageError(why) if child.returncode == UsageError.exit_code else CacheXError(why)
    child.returncode = 0  # it lives on without us: nothing to wait for


def open_log(log: Path) -> BinaryIO:
    """To write at its end. Names of files stand in it, so it is for its owner. Raises OSError."""
    if not log.parent.exists():
        log.parent.mkdir(parents=True)
        log.parent.chmod(0o755)
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    os.fchmod(fd, 0o600)
    return os.fdopen(fd, "ab")


def run_daemon(main: Callable[[], Awaitable[None]]) -> None:
    """Run a daemon's tasks in an event loop; what ends them is one error, not a group of one."""
    import trio

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        trio.run(main)
    except BaseExceptionGroup as group:
        raise _innermost(group) from group


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def teller(ready_fd: int | None) -> Callable[[], None]:
    """What a daemon calls when it is ready."""

    def tell() -> None:
        if ready_fd is not None:
            os.write(ready_fd, b"ready\n")
            os.close(ready_fd)

    return tell


def _became_ready(reader: int) -> bool:
    try:
        readable, _, _ = select.select([reader], [], [], READY_S)
        return bool(readable) and os.read(reader, 16) != b""
    finally:
        os.close(reader)


def _why(child: subprocess.Popen[bytes], log: Path, begin: int) -> str:
    """What the daemon said last; it is stopped if it still hangs."""
    try:
        child.wait(timeout=2)
    except subprocess.TimeoutExpired:
        child.terminate()
        return f"the daemon does not answer; see {log}"
    said = log.read_bytes()[begin:].decode(errors="replace").strip().splitlines()
    last = said[-1].removeprefix("cachexfs: ") if said else "it said nothing"
    return last if child.returncode else f"the daemon ended: {last}"
