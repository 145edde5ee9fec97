"""Who can stand in for the shared file system: members that hold a copy of what it has.

Of a file that was closed here the tree knows who holds copies. Of others' files nobody keeps books
once they are durable, so all members are asked, and the mounts on their nodes: only when the shared
file system does not give a file, once for each directory. A copy counts if it has the size and the
time that the file was last seen with there, so an older or a newer one is never taken for it.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import trio

from cachexfs.config import Member
from cachexfs.peers.greeting import Identity
from cachexfs.peers.handshake import HandshakeFailed
from cachexfs.peers.messages import Replica
from cachexfs.peers.reader import PeerFailed, PeerReader, connect_reader
from cachexfs.ram.node import Node, Signature
from cachexfs.ram.remote import Remote
from cachexfs.ram.tree import Tree

ASK_S = 3.0
"""How long a member may take to say what it holds."""
BELIEVED_S = 5.0
"""How long what was heard of a directory is believed."""
AT_ONCE = 16
REMEMBERED = 16_384


class _Held(NamedTuple):
    """A copy: at a member's store, or in the memory of a mount at `address`."""

    replica: Replica
    member: str
    address: str = ""


class StandIns:
    """`members`: of this moment. Raises nothing."""

    def __init__(
        self,
        tree: Tree,
        volume: str,
        identity: Identity,
        members: Callable[[], Sequence[Member]],
    ) -> None:
        self._tree = tree
        self._volume = volume
        self._identity = identity
        self._members = members
        self._found: OrderedDict[int, Remote] = OrderedDict()
        self._heard: dict[bytes, tuple[float, list[_Held]]] = {}
        self._asking = trio.Lock()

    def known(self, node: Node) -> Remote | None:
        """Who is known to hold a file whose bytes are not here."""
        if (ours := replica_of_ours(self._tree, node)) is not None:
            return ours
        found, last = self._found.get(node.ino), self._last_seen(node)
        return found if found is not None and last == _signature(found) else None

    async def find(self, node: Node) -> Remote | None:
        """As `known`, having asked whoever may hold it."""
        known = self.known(node)
        if known is not None or node.kind != "file" or not self._members():
            return known
        path, wanted = self._tree.path_of(node), self._last_seen(node)
        if not path or wanted is None:
            return None
        held = [each for each in await self._held_beside(path) if each.replica.path == path]
        if (found := _standing_for(held, wanted)) is not None:
            self._found[node.ino] = found
            if len(self._found) > REMEMBERED:
                self._found.popitem(last=False)
        return found

    def _last_seen(self, node: Node) -> Signature | None:
        """What the file was like on the shared file system."""
        place = node.place
        seen = (self._tree.seen(place.parent) or {}) if place is not None else {}
        status: os.stat_result | None = seen.get(place.name) if place is not None else None
        if status is not None:
            return Signature(status.st_size, status.st_mtime_ns)
        return node.signature

    # --- asking ---------------------------------------------------------------------------------

    async def _held_beside(self, path: bytes) -> list[_Held]:
        """What is held in the directory of a path; of the root, only the path itself."""
        prefix = path.rpartition(b"/")[0] or path
        async with self._asking:  # who comes for a file beside it waits for this answer
            at_s, held = self._heard.get(prefix, (-BELIEVED_S, []))
            if trio.current_time() - at_s >= BELIEVED_S:
                held = await self._ask_all(prefix)
                self._heard = {p: h for p, h in self._heard.items() if h[0] > at_s}
                self._heard[prefix] = trio.current_time(), held
        return held

    async def _ask_all(self, prefix: bytes) -> list[_Held]:
        held: list[_Held] = []
        limit = trio.CapacityLimiter(AT_ONCE)
        async with trio.open_nursery() as nursery:
            for member in self._members():
                nursery.start_soon(self._ask_member, member, prefix, held, limit)
        return held

    async def _ask_member(
        self, member: Member, prefix: bytes, held: list[_Held], limit: trio.CapacityLimiter
    ) -> None:
        mounts: Sequence[tuple[str, str]] = ()
        async with limit:
            with trio.move_on_after(ASK_S):
                try:
                    reader = await connect_reader(member.address, self._identity, name=member.name)
                except (PeerFailed, HandshakeFailed):
                    return
                mounts = await self._listed(reader, prefix, held, "")
            for node, address in mounts:
                await self._ask_mount(node, address, prefix, held)

    async def _ask_mount(self, node: str, address: str, prefix: bytes, held: list[_Held]) -> None:
        with trio.move_on_after(ASK_S):
            try:
                reader = await connect_reader(address, self._identity, name=node)
            except (PeerFailed, HandshakeFailed):
                return
            await self._listed(reader, prefix, held, address)

    async def _listed(
        self, reader: PeerReader, prefix: bytes, held: list[_Held], address: str
    ) -> Sequence[tuple[str, str]]:
        """Add what one holds; the mounts that it knows of, if it is a member."""
        try:
            found = await reader.list(self._volume, prefix)
            held += [_Held(each, reader.name, address) for each in found if each.kind == "file"]
            return () if address else await reader.mounts(self._volume)
        except PeerFailed:
            return ()
        finally:
            with trio.CancelScope(shield=True):
                await reader.aclose()


def replica_of_ours(tree: Tree, node: Node) -> Remote | None:
    """What members hold of a file of ours whose bytes are not in RAM any more."""
    life = node.life
    holders = life.holders() if life is not None else []
    if node.blob is not None or node.signature is None or not holders or not node.has_known_crcs:
        return None
    return Remote(
        kind="file",
        owner="",
        stamp=0,
        version=node.settled_at_ns,
        path=tree.path_of(node),
        holders=tuple(holders),
        size_bytes=node.signature.size_bytes,
        crcs=node.crcs,
    )


def _standing_for(held: Sequence[_Held], wanted: Signature) -> Remote | None:
    """The copies of one version, the newest that is just what the shared file system has."""
    same = [h for h in held if Signature(h.replica.size_bytes, h.replica.mtime_ns) == wanted]
    if not same:
        return None
    newest = max(same, key=lambda each: each.replica.version).replica
    copies = [
        each
        for each in same
        if (each.replica.owner, each.replica.version, each.replica.crcs)
        == (newest.owner, newest.version, newest.crcs)
    ]
    return Remote(
        kind="file",
        owner=newest.owner,
        stamp=0,
        version=newest.version,
        path=newest.path,
        address=next((each.address for each in copies if each.address), ""),
        holders=tuple(sorted({each.member for each in copies if not each.address})),
        size_bytes=newest.size_bytes,
        crcs=newest.crcs,
        mtime_ns=newest.mtime_ns,
    )


def _signature(remote: Remote) -> Signature:
    return Signature(remote.size_bytes, remote.mtime_ns)
