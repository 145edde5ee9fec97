"""The FUSE session: connect pyfuse3 to the kernel, serve, let go. pyfuse3 allows one in a process.

Two ways. With the kernel link, `/dev/fuse` is opened and mounted by the keeper, and libfuse gets
one end of a socket pair; the mount outlives this process. Without, libfuse mounts and talks to the
kernel itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pyfuse3
import trio

from cachexfs.errors import CacheXError
from cachexfs.mount.files import OpenFiles
from cachexfs.mount.link import codec
from cachexfs.mount.link.answers import Answers
from cachexfs.mount.link.backings import Backings
from cachexfs.mount.link.relay import Relay
from cachexfs.mount.operations import Operations
from cachexfs.ram.tree import Tree
from cachexfs.status.report import DataPath

MAX_TASKS = 4096
"""Requests in hand at once. A waiting fsync holds one, so it must exceed the writers of a node."""


class PlainSession:
    """libfuse mounts and serves."""

    data_path: DataPath = "portable"

    def __init__(
        self,
        operations: Operations,
        source: str,
        mountpoint: str,
        options: frozenset[str],
        reason: str,
    ) -> None:
        self.reason = reason
        chosen = set(pyfuse3.default_options) | {f"fsname={source}", "subtype=cachexfs"} | options
        if os.geteuid() == 0:
            chosen.add("allow_other")
        try:
            pyfuse3.init(operations, mountpoint, chosen)
        except RuntimeError as error:
            raise CacheXError(f"cannot mount on {mountpoint}: {error}") from None

    async def serve(self, ready: Callable[[], None]) -> None:
        """Answer the kernel until the file system is unmounted, or `stop` is called."""
        ready()
        await pyfuse3.main(min_tasks=1, max_tasks=MAX_TASKS)

    def stop(self) -> None:
        """Let `serve` return."""
        pyfuse3.terminate()

    def close(self) -> None:
        """Unmount, and end the session."""
        pyfuse3.close(unmount=True)


class LinkedSession:
    """The kernel link serves, over a device that somebody else holds and has mounted."""

    def __init__(
        self,
        operations: Operations,
        files: OpenFiles,
        tree: Tree,
        device: int,
        saved_init: bytes | None,
        save_init: Callable[[bytes], None],
    ) -> None:
        self._passthrough = files.passthrough
        self._keeper = os.getppid()
        self._tree = tree
        self._device = device
        self._serving = trio.CancelScope()
        tree.keeps_reflections = True
        self._relay = Relay(
            device,
            self._negotiate,
            self._passthrough.cannot_be_had,
            self._backing_of,
            Answers(files),
            saved_init,
            save_init,
            self.stop,
        )
        operations.kernel_link = self._relay
        pyfuse3.init(operations, f"/dev/fd/{self._relay.inner}", set(pyfuse3.default_options))

    @property
    def data_path(self) -> DataPath:
        """The path that a file takes which is opened now."""
        return self._passthrough.reach.data_path

    @property
    def reason(self) -> str:
        """Why it is this path; and whether the mount would still outlive this daemon."""
        reason = self._passthrough.reach.reason
        is_kept = os.getppid() == self._keeper  # else it has died, and somebody else is our parent
        return (
            reason if is_kept else f"{reason}; the keeper is gone: the mount ends with its daemon"
        )

    def _negotiate(self, offer: codec.Offer) -> codec.Offer:
        """Take what the kernel offers, and tell the open files what they can have."""
        if not offer.passthrough:
            release = os.uname().release
            self._passthrough.cannot_be_had(f"Linux {release} offers no passthrough (6.9 does)")
            return offer
        backings = Backings(self._device)
        for node in self._tree.nodes.values():
            if node.backing_id is not None:
                backings.take_over(node.ino, node.backing_id)
        self._passthrough.agreed(backings)
        return offer

    def _backing_of(self, ino: int) -> int | None:
        backings = self._passthrough.backings
        return backings.id_of(ino) if backings else None

    async def serve(self, ready: Callable[[], None]) -> None:
        """Answer the kernel until the file system is unmounted, or `stop` is called.

        Requests that are in hand then get no reply: the kernel sends them again to whoever is next.
        """
        with self._serving:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._relay.run)
                ready()
                await pyfuse3.main(min_tasks=1, max_tasks=MAX_TASKS)

    def stop(self) -> None:
        """Let `serve` return; the mount stays."""
        self._serving.cancel()

    def close(self) -> None:
        """End the session; the mount is its holder's."""
        pyfuse3.close(unmount=False)
        self._relay.close()
