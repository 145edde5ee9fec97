"""A directory as the shared file system: each host sees it through a FUSE mount that can hang.

The mount is the storage of the demo (`cachexfs.demo.storage`). It takes orders on its standard
input, here a named pipe, so that the next command can give one too; it answers into a file.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from cachexfs.demo.faults import Fault, Report
from tools.hosts.errors import ClusterError
from tools.hosts.place import Place
from tools.hosts.sharedfs import detach_from, is_attached, must_answer, source_of
from tools.hosts.spec import Spec
from tools.hosts.system import module

OBEYS_S = 20.0
_LOOK_EVERY_S = 0.01


class Directory:
    """The directory `disk` below the cluster's home."""

    def __init__(self, spec: Spec) -> None:
        self._disk = spec.home / "disk"

    def prepare(self) -> None:
        """Make it; open to all, as the shared file systems of clusters are."""
        self._disk.mkdir()
        self._disk.chmod(0o1777)

    def attach(self, place: Place) -> None:
        """Start the host's storage process. Raises `ClusterError`."""
        detach_from(place)
        source_of(place).mkdir(exist_ok=True)
        pipe, answers = _pipe(place), _answers(place)
        answers.write_bytes(b"")
        if not pipe.exists():
            os.mkfifo(pipe, 0o600)
        with (
            pipe.open("r+b", buffering=0) as orders,  # its own writer: the input never ends
            answers.open("ab") as said,
            (place.home / "storage.log").open("ab") as log,
        ):
            storage = module("cachexfs.demo.storage", self._disk, source_of(place))
            # Forked once more: it lives on without us, who need not wait for its end.
            command = place.inside(["setsid", "--fork", *storage])
            subprocess.run(command, stdin=orders, stdout=said, stderr=log, check=True)
        _next_answer(place, 0)
        must_answer(place)

    def block(self, place: Place) -> None:
        """Every operation waits; a host that is dead cannot mount. Raises `ClusterError`."""
        if is_attached(place):
            set_faults(place, [Fault(hang=True)])
        _mark(place).touch()

    def unblock(self, place: Place) -> None:
        """What waits goes on. Raises `ClusterError`."""
        if is_attached(place):
            set_faults(place, [])
        _mark(place).unlink(missing_ok=True)

    def is_blocked(self, place: Place) -> bool:
        """As the last order was."""
        return _mark(place).exists()


def _pipe(place: Place) -> Path:
    return place.home / "storage.orders"


def _answers(place: Place) -> Path:
    return place.home / "storage.answers"


def _mark(place: Place) -> Path:
    return place.home / "storage.is-blocked"


def set_faults(place: Place, faults: Sequence[Fault]) -> None:
    """Put faults in force; they are when this returns. Raises `ClusterError`."""
    with _answers(place).open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one order at a time, so that its answer is the next line
        seen = _answers(place).stat().st_size
        try:
            pipe = os.open(_pipe(place), os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            raise ClusterError(f"the storage of {place.name} does not run") from None
        os.write(pipe, msgspec.json.encode(faults) + b"\n")
        os.close(pipe)
        _next_answer(place, seen)


def _next_answer(place: Place, seen: int) -> None:
    """Wait for a line after the first `seen` bytes. Raises `ClusterError`."""
    deadline = time.monotonic() + OBEYS_S
    while b"\n" not in (line := _answers(place).read_bytes()[seen:]):
        if time.monotonic() > deadline:
            raise ClusterError(f"the storage of {place.name} does not answer; see {place.home}")
        time.sleep(_LOOK_EVERY_S)
    if (error := msgspec.json.decode(line, type=Report).error) is not None:
        raise ClusterError(f"the storage of {place.name}: {error}")
