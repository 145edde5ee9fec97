"""Running programs of the system, none of which is waited for without a limit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cachexfs.errors import TimedOut
from tools.hosts.errors import ClusterError

TOOL_S = 30.0
"""ip, tc and mount answer in milliseconds; on a machine with too much to do in seconds."""
GIVEN_UP_S = 2.0
_CHECKOUT = Path(__file__).parents[2]


def module(name: str, *arguments: str | Path) -> list[str]:
    """The command line that runs a module of this checkout, in any directory."""
    path = os.pathsep.join(filter(None, (str(_CHECKOUT), os.environ.get("PYTHONPATH"))))
    return ["env", f"PYTHONPATH={path}", sys.executable, "-m", name, *map(str, arguments)]


def system(*command: str | Path, limit_s: float = TOOL_S) -> str:
    """What a program prints. Raises `ClusterError` with what it complained about."""
    done = run(list(map(str, command)), limit_s)
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
        raise ClusterError(f"{' '.join(map(str, command))}: {said}")
    return done.stdout


def run(
    command: Sequence[str], limit_s: float | None, *, text: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command with `text` as its input. Raises `TimedOut`.

    A process that waits for a file system may not even be killed, so it is left behind then; and
    its output goes to files, because a pipe would be waited for until it ends. It is a session of
    its own, so that what it started goes with it.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as complaints:
        stdin = _file_with(text)
        try:
            process = subprocess.Popen(
                command, stdin=stdin, stdout=out, stderr=complaints, start_new_session=True
            )
        except OSError as error:
            raise ClusterError(f"{command[0]}: {error.strerror}") from None
        finally:
            os.close(stdin)
        try:
            code = process.wait(limit_s)
        except BaseException as error:
            _give_up(process)
            if isinstance(error, subprocess.TimeoutExpired):
                raise TimedOut(f"{' '.join(command[-3:])}: not within {limit_s:.0f} s") from None
            raise
        return subprocess.CompletedProcess(list(command), code, _read(out), _read(complaints))


def _file_with(text: str | None) -> int:
    if text is None:
        return os.open(os.devnull, os.O_RDONLY)
    fd = os.memfd_create("input")
    os.write(fd, text.encode())
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _give_up(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(GIVEN_UP_S)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        process.returncode = -signal.SIGKILL  # not waited for


def _read(file: object) -> str:
    assert hasattr(file, "seek") and hasattr(file, "read")
    file.seek(0)
    return bytes(file.read()).decode(errors="replace")
