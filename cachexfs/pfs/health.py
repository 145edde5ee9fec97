"""Whether the shared file system answers, judged by the calls that are under way. No I/O."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from cachexfs.status.report import Problem

TROUBLE = frozenset(
    {
        errno.EIO,
        errno.EDQUOT,
        errno.ENOSPC,
        errno.EROFS,
        errno.ESTALE,
        errno.ETIMEDOUT,
        errno.EREMOTEIO,
        errno.ENOTCONN,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.ECONNABORTED,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ESHUTDOWN,
        errno.EAGAIN,
        errno.ENOLCK,
        errno.ENOMEM,
        errno.ENFILE,
        errno.EMFILE,
    }
)
"""Errors that speak of the state of the file system, not of the thing that was asked for."""

SILENCE = frozenset(
    {
        errno.ETIMEDOUT,
        errno.ENOTCONN,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.ECONNABORTED,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ESHUTDOWN,
    }
)
"""Of these, those that say that nobody answers: over as soon as somebody does."""

_CODES = {
    errno.EDQUOT: ("SourceQuotaExceeded", "raise the quota or remove old files"),
    errno.ENOSPC: ("SourceFull", "make room on the shared file system"),
    errno.EROFS: ("SourceReadOnly", "remount the shared file system for writing"),
    errno.ETIMEDOUT: ("SourceNotAnswering", "look after the shared file system"),
}
_OTHER = ("SourceFailing", "look after the shared file system")


class SourceBlocked(OSError):
    """The shared file system did not answer within the time limit."""

    def __init__(self) -> None:
        super().__init__(errno.ETIMEDOUT, "the shared file system does not answer")


def is_trouble(error: OSError) -> bool:
    """Whether an error is the file system's own trouble, to be waited out."""
    return error.errno in TROUBLE


@dataclass
class Health:
    """Calls under way and the last trouble seen. `clock` gives seconds, monotonic."""

    timeout_s: float
    clock: Callable[[], float]
    _under_way: dict[int, float] = field(default_factory=dict)
    _next: int = 0
    _trouble: dict[int, tuple[OSError, float]] = field(default_factory=dict)

    def begin(self) -> int:
        """A call goes out; returns its number."""
        self._next += 1
        self._under_way[self._next] = self.clock()
        return self._next

    def end(self, number: int, error: OSError | None = None) -> None:
        """A call came back. An answer takes back that nothing is answered, not that writes fail."""
        began_s = self._under_way.pop(number, None)
        if error is not None and is_trouble(error):
            self.note(error)
        elif began_s is not None:
            self._answered(began_s)

    def _answered(self, asked_s: float) -> None:
        """What was asked since then is answered: so the silence that was seen before is over.

        An idle mount writes nothing that could show it to be well; its probes do.
        """
        over = [number for number, (_, at_s) in self._trouble.items() if at_s <= asked_s]
        for number in over:
            if number in SILENCE:
                del self._trouble[number]

    def note(self, error: OSError) -> None:
        """Trouble was seen."""
        self._trouble[error.errno or errno.EIO] = (error, self.clock())

    def well(self) -> None:
        """Something was written, fsynced and put in place: whatever was wrong is over."""
        self._trouble.clear()

    @property
    def is_blocked(self) -> bool:
        """Whether a call has been out for longer than the time limit."""
        return self.longest_wait_s() > self.timeout_s

    def longest_wait_s(self) -> float:
        """How long the oldest call has been out."""
        oldest = min(self._under_way.values(), default=None)
        return 0.0 if oldest is None else self.clock() - oldest

    def problems(self) -> list[Problem]:
        """What a person should know."""
        found = [self._describe(error, at) for error, at in self._trouble.values()]
        if self.is_blocked:
            waited = f"a call has not come back for {self.longest_wait_s():.0f} s"
            found.append(Problem("SourceNotAnswering", waited, _CODES[errno.ETIMEDOUT][1]))
        return found

    def _describe(self, error: OSError, at: float) -> Problem:
        code, action = _CODES.get(error.errno or 0, _OTHER)
        name = errno.errorcode.get(error.errno or 0, "?")
        text = f"{name} ({os.strerror(error.errno or errno.EIO)}), {self.clock() - at:.0f} s ago"
        return Problem(code, text, action)
