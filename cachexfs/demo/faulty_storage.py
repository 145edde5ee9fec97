"""A handle on the demo's storage: start it, make it fail, stop it.

The storage runs in a process of its own (`cachexfs.demo.storage`), which ends with the process that
holds the handle. Calls return when what they asked for is true.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import msgspec

import cachexfs
from cachexfs.demo.faults import Fault, Report
from cachexfs.demo.mountpoints import detach, is_mountpoint
from cachexfs.errors import CacheXError

UNMOUNT_S = 5.0
"""Unmounting that takes longer is taken for stuck, and the storage killed under it."""


class StorageError(CacheXError):
    """The demo's storage could not be started, or did not take an order."""


class FaultyStorage:
    """`backing` seen at `mountpoint`, both directories that exist. A context manager.

    >>> with FaultyStorage(backing, mountpoint) as storage:
    ...     storage.set_fault(Fault(errno="EDQUOT", ops=("write",), name="latest*"))
    ...     storage.clear()
    """

    def __init__(self, backing: Path, mountpoint: Path) -> None:
        self.backing = backing
        self.mountpoint = mountpoint
        self._process: subprocess.Popen[bytes] | None = None
        self._ill = False
        self._lock = threading.Lock()

    def start(self) -> None:
        """Mount. Raises `StorageError` with the reason."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "cachexfs.demo.storage", self.backing, self.mountpoint],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            env=_environment(),
            start_new_session=True,  # Ctrl-C is for the demo, which then stops its storage in order
        )
        try:
            self._answer()
        except StorageError:
            self.stop()
            raise

    def stop(self) -> None:
        """Unmount, also while operations hang: those fail. Nothing is left running or mounted."""
        process, self._process = self._process, None
        if process is None:
            return
        if not self._ill:
            # Unmounting writes back what is dirty, which needs the storage alive.
            with contextlib.suppress(subprocess.TimeoutExpired):
                detach(self.mountpoint).wait(UNMOUNT_S)
        # While the storage hangs nothing may be forked before this: the child would close the files
        # that this process has open there, wait for the storage, and its parent for it.
        process.kill()
        process.communicate()
        if is_mountpoint(self.mountpoint):
            detach(self.mountpoint).wait()
        self._ill = False

    def set_fault(self, *faults: Fault) -> None:
        """Put these faults in force in the place of all others; of several the first that fits."""
        self._ill = bool(faults)
        self._order(msgspec.json.encode(faults))

    def clear(self) -> None:
        """Be well again: what hung or was slow is carried out now."""
        self.set_fault()

    @contextlib.contextmanager
    def fault(self, *faults: Fault) -> Iterator[None]:
        """Be ill within a `with` block."""
        self.set_fault(*faults)
        try:
            yield
        finally:
            self.clear()

    def report(self) -> Report:
        """Operations seen, hits of the faults in force, operations that hang now."""
        return self._order(b"null")

    def _order(self, line: bytes) -> Report:
        if self._process is None or self._process.stdin is None:
            raise StorageError("the demo's storage is not running")
        with self._lock:
            try:
                self._process.stdin.write(line + b"\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                raise StorageError("the demo's storage has ended by itself") from None
            return self._answer()

    def _answer(self) -> Report:
        assert self._process is not None and self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise StorageError("the demo's storage has ended by itself")
        report = msgspec.json.decode(line, type=Report)
        if report.error is not None:
            raise StorageError(report.error)
        return report

    def __enter__(self) -> FaultyStorage:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def _environment() -> dict[str, str]:
    """This process's environment, in which the package is found from any directory."""
    here = str(Path(cachexfs.__file__).parent.parent)
    path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    return os.environ | {"PYTHONPATH": path}
