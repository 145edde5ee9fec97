"""The keeper: a small process that holds /dev/fuse, so that the mount outlives its daemon.

    keeper: open /dev/fuse, mount -> start the daemon -> wait --ended well--> end
                                          ^               |
                                          +--- died ------+  with a pause that grows while it dies
                                                             at once; at last unmount and give up

It imports next to nothing and does nothing but wait, so there is next to nothing to die of. While
no daemon is alive the kernel keeps the requests of programs; files that are open past the daemon
are read and written as if nothing had happened.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cachexfs.errors import CacheXError
from cachexfs.mount.link import device
from cachexfs.mountstate import HANDED_OVER

log = logging.getLogger(__name__)

SERVED_S = 0.5
"""A daemon that served for so long did not die at once; the count begins anew."""

_NOT_STARTED = -1

PAUSES_S = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0)
"""Before the next daemon, by how many died at once in a row; after the last one we give up."""


@dataclass
class Deaths:
    """How many daemons died at once, in a row. Pure."""

    in_a_row: int = 0

    def pause_s(self, served_s: float) -> float | None:
        """The pause before the next daemon, when one has died; None: it cannot be helped."""
        self.in_a_row = 1 if served_s >= SERVED_S else self.in_a_row + 1
        return PAUSES_S[self.in_a_row - 1] if self.in_a_row <= len(PAUSES_S) else None


@dataclass
class Keeper:
    """One mount. `command(device, ready)` is a daemon's command line, with two descriptors: of
    /dev/fuse, and where the daemon says that it serves. `ready_fd` is where we say so, once.
    """

    source: str
    mountpoint: str
    options: frozenset[str]
    command: Callable[[int, int], Sequence[str]]
    ready_fd: int | None = None
    _child: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _has_served: bool = field(default=False, init=False)
    _is_ending: bool = field(default=False, init=False)

    def run(self) -> int:
        """Mount, and keep a daemon alive until the file system is unmounted; the exit code.

        Raises `CacheXError` when it cannot be mounted.
        """
        fd = device.open_device()
        try:
            device.mount(fd, self.source, self.mountpoint, self.options)
        except OSError as error:
            os.close(fd)
            raise CacheXError(f"cannot mount on {self.mountpoint}: {error.strerror}") from None
        signal.signal(signal.SIGTERM, self._end)
        signal.signal(signal.SIGINT, self._end)
        try:
            return self._keep(fd)
        finally:
            if device.is_mounted(fd):  # otherwise what is mounted there now is another one
                with contextlib.suppress(OSError):
                    device.unmount(self.mountpoint)
            os.close(fd)

    def _keep(self, fd: int) -> int:
        deaths = Deaths()
        while True:
            code, served_s = self._one_daemon(fd)
            if code == 0 or self._is_ending:
                return max(code, 0)
            if not self._has_served:
                return code if code > 0 else 1  # the very first one, and it has said why
            if code == HANDED_OVER:
                continue
            pause_s = deaths.pause_s(served_s)
            log.warning("the daemon of %s died (%d)", self.mountpoint, code)
            if pause_s is None:
                log.error("it dies at once each time: unmounted; what was captured is kept")
                return 1
            time.sleep(pause_s)

    def _one_daemon(self, fd: int) -> tuple[int, float]:
        """Start a daemon and wait for its end.

        Returns its exit code, negative for a signal, and for how many seconds it served.
        """
        reader, writer = os.pipe()
        command = list(self.command(fd, writer))
        try:
            self._child = subprocess.Popen(command, pass_fds=[fd, writer])
        except OSError as error:  # no process or memory to be had at the moment
            log.warning("no daemon can be started: %s", error)
            os.close(reader)
            return _NOT_STARTED, 0.0
        finally:
            os.close(writer)
        ready = os.read(reader, 16)  # nothing: it ended before it served
        os.close(reader)
        served_since = time.monotonic()
        if ready:
            self._has_served = True
            self._tell(ready)
        code = self._child.wait()
        return code, time.monotonic() - served_since if ready else 0.0

    def _tell(self, ready: bytes) -> None:
        if self.ready_fd is not None:
            os.write(self.ready_fd, ready)
            os.close(self.ready_fd)
            self.ready_fd = None

    def _end(self, *_: object) -> None:
        self._is_ending = True
        with contextlib.suppress(OSError):
            device.unmount(self.mountpoint)
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                self._child.terminate()
