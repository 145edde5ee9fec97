"""Where the mounts of a node serve what they hold: each tells the peer of its node.

A peer answers on a port that everybody knows, a mount's daemon on one that the kernel picked. So a
mount registers itself with its own node's peer, as a name in a directory that there is not; who
recovers asks each peer that answers for its mounts. Like the rest of the register it is soft state.
"""

from __future__ import annotations

import time

import trio

from cachexfs.peers import messages as m
from cachexfs.peers.homes import Homes
from cachexfs.peers.register import REFRESH_S

NOWHERE = 0
"""No directory of a shared file system has this inode number."""


class Whereabouts:
    """Tells of one mount. `address`: where it serves, empty when it does not."""

    def __init__(self, homes: Homes, node: str, address: str) -> None:
        self._homes = homes
        self._node = node
        self._address = address
        self._again = trio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        while self._address:
            self._again = trio.Event()
            await self._homes.introduce(self._node, NOWHERE, self._entry())
            with trio.move_on_after(REFRESH_S):
                await self._again.wait()

    def came_back(self, name: str) -> None:
        """A member answers again; it may have forgotten us."""
        if name == self._node:
            self._again.set()

    def _entry(self) -> m.Entry:
        now_ns, name = time.time_ns(), self._address.encode()
        replica = m.Replica(
            volume=self._homes.volume, path=name, kind="directory", owner=self._node,
            version=now_ns, closed_at_ns=now_ns,
        )  # fmt: skip
        return m.Entry(name=name, stamp=now_ns, replica=replica, address=self._address)
