"""The demo: everything that it tells is true, and nothing of it is left, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cachexfs.demo.mountpoints import mounted
from tests.cluster_of_nodes import eventually

pytestmark = pytest.mark.fuse

LIMIT_S = 100.0


def start(home: Path, *arguments: str) -> subprocess.Popen[str]:
    """The demo, with its directory below `home`."""
    return subprocess.Popen(
        [sys.executable, "-m", "cachexfs", "demo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": str(home), "PYTHONUNBUFFERED": "1"},
    )


def nothing_is_left(home: Path) -> bool:
    """No directory, no mount, no process that was given a path below `home`."""
    below = [mount for mount in mounted() if mount.path.is_relative_to(home)]
    return not below and not list(home.iterdir()) and not processes_of(home)


def processes_of(home: Path) -> list[str]:
    """The command lines that name something below `home`."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = process.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(home) in line:
            found.append(line)
    return found


def read_until(demo: subprocess.Popen[str], words: str) -> None:
    """Read what it tells, up to a line with these words."""
    assert demo.stdout is not None
    for line in demo.stdout:
        if words in line:
            return
    raise AssertionError(f"the demo ended before it said {words!r}")


def test_everything_it_tells_is_true(tmp_path: Path) -> None:
    demo = start(tmp_path)
    told, _ = demo.communicate(timeout=LIMIT_S)
    assert demo.returncode == 0, told
    assert "All of this was true" in told
    assert nothing_is_left(tmp_path)


@pytest.mark.parametrize(
    ("words", "number"),
    [
        ("as the yardstick", signal.SIGINT),
        ("now trains on node A", signal.SIGINT),
        ("becomes slow", signal.SIGINT),
        ("Node A dies", signal.SIGTERM),
    ],
)
def test_it_cleans_up_when_it_is_interrupted(
    tmp_path: Path, words: str, number: signal.Signals
) -> None:
    demo = start(tmp_path)
    read_until(demo, words)
    demo.send_signal(number)
    told, _ = demo.communicate(timeout=LIMIT_S)
    assert demo.returncode == 128 + number, told
    assert nothing_is_left(tmp_path)


def test_what_is_not_true_ends_it_with_a_sentence(tmp_path: Path) -> None:
    demo = start(tmp_path)
    read_until(demo, "becomes slow")
    home = next(tmp_path.iterdir())
    os.kill(pid_of(home / "node-b"), signal.SIGKILL)  # the peer that the story needs
    told, _ = demo.communicate(timeout=LIMIT_S)
    assert demo.returncode == 1, told
    assert "cachexfs: " in told
    assert nothing_is_left(tmp_path)


def pid_of(node: Path) -> int:
    """The peer's process of a node."""

    def search() -> int | None:
        for process in Path("/proc").glob("[0-9]*"):
            try:
                line = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"peer" in line and os.fsencode(node / "cachexfs.toml") in line:
                return int(process.name)
        return None

    found: int = eventually(search, "the peer")
    return found
