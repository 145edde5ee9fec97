"""The rules by which the demo's storage fails. Pure: no I/O, no clock.

A `Fault` says what happens to which operations; `Rules` holds the faults that are in force and
gives a verdict for each operation. The first fault that matches decides.
"""

from __future__ import annotations

import errno
from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import msgspec

# fmt: off
OPERATIONS = frozenset((
    "access", "create", "flush", "fsync", "fsyncdir", "getattr", "getxattr", "link",
    "listxattr", "lookup", "mkdir", "mknod", "open", "opendir", "read", "readdir", "readlink",
    "removexattr", "rename", "rmdir", "setattr", "setxattr", "statfs", "symlink", "truncate",
    "unlink", "write",
))
# fmt: on
"""What a fault can name. `truncate` is a setattr that changes the size."""


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One way to be ill: fail with `errno`, hang, or be slow.

    `ops` empty means every operation. `name` is a glob on the last part of the path or on the whole
    path below the storage's root. `count` limits the fault to the first so many operations.
    `delay_s` is added to each operation; writes share `bytes_per_s`.
    """

    errno: str | None = None
    hang: bool = False
    delay_s: float = 0.0
    bytes_per_s: float | None = None
    ops: tuple[str, ...] = ()
    name: str | None = None
    count: int | None = None

    def __post_init__(self) -> None:
        # ValueError and not an error of our own: msgspec turns it into its ValidationError.
        if unknown := set(self.ops) - OPERATIONS:
            raise ValueError(f"no such operation: {', '.join(sorted(unknown))}")
        if self.errno is not None and not isinstance(getattr(errno, self.errno, None), int):
            raise ValueError(f"no such errno: {self.errno}")
        if self.bytes_per_s is not None and self.bytes_per_s <= 0:
            raise ValueError("bytes_per_s must be more than 0")

    def matches(self, op: str, paths: tuple[str, ...]) -> bool:
        """Whether this fault is about that operation on one of these paths."""
        return (not self.ops or op in self.ops) and self._names(paths)

    def _names(self, paths: tuple[str, ...]) -> bool:
        if (glob := self.name) is None:
            return True
        return any(
            fnmatchcase(path, glob) or fnmatchcase(path.rpartition("/")[2], glob) for path in paths
        )


@dataclass(frozen=True)
class Proceed:
    """Carry the operation out, after a delay."""

    delay_s: float = 0.0


@dataclass(frozen=True)
class Fail:
    """Answer with this errno and do nothing."""

    errno: int


@dataclass(frozen=True)
class Hang:
    """Wait until the rules change, then ask again."""


Verdict = Proceed | Fail | Hang


class Report(msgspec.Struct, frozen=True):
    """What the storage saw: operations by name, hits of the faults now in force, who hangs."""

    ops: dict[str, int] = {}
    hits: int = 0
    waiting: int = 0
    error: str | None = None


@dataclass
class Rules:
    """The faults in force, how often each was hit, and until when the write channel is busy."""

    faults: tuple[Fault, ...] = ()
    _hits: Counter[int] = field(default_factory=Counter)
    _busy_until_s: float = 0.0

    @property
    def hits(self) -> int:
        """How many operations a fault changed."""
        return self._hits.total()

    @property
    def look_at_paths(self) -> bool:
        """Whether any fault asks for names; finding them costs a system call."""
        return any(fault.name is not None for fault in self.faults)

    def verdict(self, op: str, paths: tuple[str, ...], size_bytes: int, now_s: float) -> Verdict:
        """What happens to this operation."""
        for index, fault in enumerate(self.faults):
            spent = fault.count is not None and self._hits[index] >= fault.count
            if not spent and fault.matches(op, paths):
                self._hits[index] += 1
                return self._apply(fault, op, size_bytes, now_s)
        return Proceed()

    def _apply(self, fault: Fault, op: str, size_bytes: int, now_s: float) -> Verdict:
        if fault.errno is not None:
            return Fail(getattr(errno, fault.errno))
        if fault.hang:
            return Hang()
        if fault.bytes_per_s is None or op != "write":
            return Proceed(fault.delay_s)
        start_s = max(now_s, self._busy_until_s)
        self._busy_until_s = start_s + size_bytes / fault.bytes_per_s
        return Proceed(fault.delay_s + self._busy_until_s - now_s)
