"""One job's parent, for as long as any of its processes lives: `python supervisor.py DIRECTORY`.

The daemon may die; whoever starts a process is who learns its exit code. So each job has a parent
of its own that does nothing else: it takes the place of init for the job (PR_SET_CHILD_SUBREAPER:
a daemonised grandchild stays its descendant), writes down who runs and how that ended, and ends
when the last of them is gone. Only the standard library's small modules: there is one of these for
each job.

In DIRECTORY: `launch.json` says what to run; `lock` is held for life, so that a job is not started
twice; `run.json` names the processes once they run, `exit.json` the end of the first of them, and
`over.json` says that none is left.
On standard output comes one line: {"pid": N, "start": TICKS} or {"error": SENTENCE, "code": N}.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import sys
import time
from typing import Any, NoReturn

PR_SET_CHILD_SUBREAPER = 36
NOT_FOUND, NOT_RUN = 127, 126
"""What the shell answers for a command that does not exist, or cannot be run."""
KEPT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE)


def main(directory: str) -> int:
    """Run the job of a directory to its end."""
    os.chdir(directory)
    lock = os.open("lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return _answer({"error": "another start of this job still runs", "code": -1})
    with open("launch.json", encoding="utf-8") as file:  # noqa: PTH123 - pathlib costs time here
        launch = json.load(file)
    if _attempt_in("run.json") >= launch["attempt"]:
        return _answer({"error": "this start of the job has been before", "code": -1})
    for number in KEPT:
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return _supervise(launch)


def _supervise(launch: dict[str, Any]) -> int:
    attempt = launch["attempt"]
    reader, writer = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        _become(launch, writer)
    os.close(writer)
    failure = json.loads(os.read(reader, 1 << 16) or "null")
    os.close(reader)
    try:
        _write("run.json", {"attempt": attempt, "supervisor": _named(), "main": _named(child)})
    except OSError as error:  # nobody would find it again: it does not run
        os.kill(child, signal.SIGKILL)
        failure = {"error": f"its run cannot be written down: {error.strerror}", "code": NOT_RUN}
    if failure is not None:
        _end(attempt, failure)
    _answer(failure or _named(child))
    _reap(child, attempt, is_known=failure is not None)
    with contextlib.suppress(OSError):
        _write("over.json", {"attempt": attempt})
    return 0


def _reap(main_pid: int, attempt: int, *, is_known: bool) -> None:
    """Until there is no descendant any more."""
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            return
        if pid == main_pid and not is_known:
            code = os.waitstatus_to_exitcode(status)
            _end(attempt, {"code": code if code >= 0 else 128 - code})


def _end(attempt: int, how: dict[str, Any]) -> None:
    """Without room for it the exit code is lost; the job's other processes still need a parent."""
    with contextlib.suppress(OSError):
        _write("exit.json", {"attempt": attempt, "at": time.time(), **how})


def _become(launch: dict[str, Any], writer: int) -> NoReturn:
    """In the child: turn into the job's command, or say why that cannot be."""
    step = "the session"
    try:
        os.setsid()
        for number in (*KEPT, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        step = launch["cgroup"]
        if launch["cgroup"]:
            _join(launch["cgroup"])
        step = f"user {launch['uid']}"
        if os.geteuid() == 0:
            os.setgroups(launch["groups"])
            os.setgid(launch["gid"])
            os.setuid(launch["uid"])
        step = launch["directory"]
        os.chdir(launch["directory"])
        step = launch["output"]
        _redirect(launch["output"], launch["error"])
        step = launch["command"][0]
        os.execvpe(launch["command"][0], launch["command"], launch["environment"])
    except OSError as error:
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUN
        text = json.dumps({"error": f"{step}: {error.strerror}", "code": code})
        os.write(writer, text.encode())
    finally:
        os._exit(NOT_RUN)


def _join(cgroup: str) -> None:
    with open(f"{cgroup}/cgroup.procs", "w", encoding="ascii") as file:  # noqa: PTH123
        file.write(str(os.getpid()))


def _redirect(output: str, error: str) -> None:
    os.umask(0o022)
    empty = os.open("/dev/null", os.O_RDONLY)
    out = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    err = os.open(error, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666) if error else out
    for descriptor, wanted in ((empty, 0), (out, 1), (err, 2)):
        os.dup2(descriptor, wanted)


def _named(pid: int | None = None) -> dict[str, int]:
    """A process by its pid and its start time (clock ticks since boot, proc(5) stat field 22)."""
    chosen = pid or os.getpid()
    with open(f"/proc/{chosen}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        return {"pid": chosen, "start": int(file.read().rpartition(")")[2].split()[19])}


def _attempt_in(path: str) -> int:
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            return int(json.load(file)["attempt"])
    except (OSError, ValueError, KeyError):
        return 0


def _write(path: str, content: dict[str, Any]) -> None:
    """All of it or nothing, whenever we are killed."""
    with open(f"{path}.new", "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump(content, file)
    os.replace(f"{path}.new", path)


def _answer(content: dict[str, Any]) -> int:
    """The one line; nobody may be left to read it."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(content).encode() + b"\n")
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
