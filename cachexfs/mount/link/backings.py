"""Which inode has which file registered with the kernel, and how many opens hold it.

The kernel wants every open of an inode in the same mode, and all passthrough opens of one on the
same backing file; so a file is registered at an inode's first open and given up at its last close.
The counts are the nodes' own, and are journaled with them: they outlive the daemon, as the
registrations do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from cachexfs.mount.link import device

log = logging.getLogger(__name__)


class Backings:
    """Backing ids by inode number. `register` and `unregister` are the ioctls, or fakes."""

    def __init__(
        self,
        fd: int,
        register: Callable[[int, int], int] = device.register,
        unregister: Callable[[int, int], None] = device.unregister,
    ) -> None:
        self._device = fd
        self._register = register
        self._unregister = unregister
        self._ids: dict[int, int] = {}

    def take_over(self, ino: int, backing_id: int) -> None:
        """A registration that a daemon before this one made."""
        self._ids[ino] = backing_id

    def id_of(self, ino: int) -> int | None:
        """The backing id of an inode that is open in passthrough mode; None otherwise."""
        return self._ids.get(ino)

    def add(self, ino: int, fd: int) -> int:
        """Register an open file for an inode that has none. Raises OSError."""
        assert ino not in self._ids, "an inode has one backing file"
        self._ids[ino] = self._register(self._device, fd)
        return self._ids[ino]

    def drop(self, ino: int) -> None:
        """The last open of an inode is gone."""
        backing_id = self._ids.pop(ino, None)
        if backing_id is None:
            return
        try:
            self._unregister(self._device, backing_id)
        except OSError as error:
            log.warning("backing id %d cannot be given up: %s", backing_id, error)
