"""How far passthrough reaches on a mount, and why not further. Pure.

What is refused once is not asked for again: a program's open would each time cost a system call
that cannot succeed. The next daemon asks anew.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from cachexfs.status.report import DataPath


class Place(Enum):
    """Where the bytes of a file are."""

    RAM = "the RAM tier"
    OVERFLOW = "the overflow directory"
    SOURCE = "the shared file system"


WHY: Mapping[int, str] = {
    errno.EPERM: "the daemon has no CAP_SYS_ADMIN",
    errno.ELOOP: "it is stacked on another file system, as overlayfs is",
    errno.EOPNOTSUPP: "its files cannot be read and written by the kernel alone",
    errno.EINVAL: "its files cannot be backing files",
    errno.EBADF: "its open files cannot be backing files",
    errno.ENOTTY: "this kernel does not know how",
}
"""What the kernel means by refusing a backing file (fuse_backing_open of fs/fuse/backing.c)."""

PASSING = frozenset({errno.ENOMEM, errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.EINTR})
"""Refusals that say nothing of the next file: something is short at the moment."""


@dataclass(frozen=True)
class Reach:
    """What the kernel reads and writes itself.

    `obstacle`: why it does so with no file at all; "" where it does. `refused`: by place, why its
    files are not among them.
    """

    obstacle: str = ""
    refused: Mapping[Place, str] = field(default_factory=dict)

    def takes(self, place: Place) -> bool:
        """Whether files there can go past the daemon."""
        return not self.obstacle and place not in self.refused

    def without(self, place: Place, error: OSError) -> Reach:
        """The kernel has refused a file there. Without the RAM tier nothing is left to be had."""
        if error.errno in PASSING:
            return self
        why = _why(error)
        if place is Place.RAM:
            return replace(self, obstacle=f"the kernel refuses files of {place.value}: {why}")
        return replace(self, refused={**self.refused, place: why})

    @property
    def data_path(self) -> DataPath:
        """The path that `status` names."""
        return "portable" if self.obstacle else "passthrough"

    @property
    def reason(self) -> str:
        """Why it is this path."""
        rest = (f"; {place.value} through the daemon: {why}" for place, why in self.refused.items())
        return self.obstacle or "the kernel reads and writes the RAM tier" + "".join(rest)


def _why(error: OSError) -> str:
    name = errno.errorcode.get(error.errno or 0, "no number")
    return f"{WHY.get(error.errno or 0, error.strerror or str(error))} ({name})"
