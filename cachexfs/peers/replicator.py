"""What goes to the peers, and in which order: one line for the whole mount.

Files and changes of names enter the line when they happen. A file's checksums are computed when it
comes to the front, so the line moves in order; then it is given to the links of the chosen
partners. So what a partner has acknowledged is a prefix of what happened here.

Changes of names are journaled for each partner until it acknowledged them: a deleted file must not
come back because a partner was away. Files need no such note: those without enough copies are
found in the tree.
"""

from __future__ import annotations

import logging
import math
import os
import ssl
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import msgspec
import trio

from cachexfs.config import Member
from cachexfs.durability.actions import (
    Action,
)
from cachexfs.durability.states import State
from cachexfs.peers import orders
from cachexfs.peers.ahead import Sent
from cachexfs.peers.catalogue import Catalogue, from_message
from cachexfs.peers.chase import is_steady
from cachexfs.peers.follower import Follower
from cachexfs.peers.mending import Mended, Mender, above
from cachexfs.peers.partners import Partners
from cachexfs.peers.sender import PeerLink
from cachexfs.peers.transfer import Compression
from cachexfs.ram.journal import Journal
from cachexfs.ram.node import Node
from cachexfs.ram.sums import Sums, is_present
from cachexfs.ram.tier import Tier
from cachexfs.ram.tree import Tree
from cachexfs.status.report import PeerReport, Problem

log = logging.getLogger(__name__)

_REVIEW_EVERY_S = 1.0


class Observer(Protocol):
    """Who wants to know. Called in the event loop; must not await."""

    def acknowledged(self, node: Node, version: int, peer: str) -> None:
        """A peer holds this version on its disk."""

    def replica_lost(self, node: Node, peer: str) -> None:
        """A peer holds nothing of this file any more."""


@dataclass(frozen=True, eq=False, kw_only=True)
class _FilePut(orders.Put):
    """A put that remembers which file it is about."""

    ino: int
    version: int
    mended: Mended | None = None


@dataclass(frozen=True, eq=False)
class _Noted:
    """A change of names and its number in each partner's outbox."""

    order: orders.Order
    numbers: dict[str, int]


@dataclass(frozen=True)
class _Waiting:
    """A file at its place in the line."""

    ino: int
    version: int
    path: bytes
    partners: tuple[str, ...]
    others: tuple[bytes, ...] = ()
    """Its other names."""


class Replicator:
    """Brings captured files to `copies` partners. `run` must be running for anything to happen."""

    def __init__(
        self,
        tree: Tree,
        tier: Tier,
        sums: Sums,
        journal: Journal,
        observer: Observer,
        *,
        node: str,
        rack: str,
        volume: str,
        root_ino: Callable[[], int] = lambda: 0,
        partners: Sequence[Member],
        copies: int,
        secret: bytes,
        ssl_context: ssl.SSLContext | None = None,
        compression: Compression = "off",
        chase: bool = False,
    ) -> None:
        self._tree = tree
        self._tier = tier
        self._sums = sums
        self._journal = journal
        self._observer = observer
        self._volume = volume
        self._catalogue = Catalogue(tree, tier, node, volume, root_ino)
        self._node = node
        self._secret = secret
        self._ssl_context = ssl_context
        self._compression: Compression = compression
        self._to_line, self._line = trio.open_memory_channel[_Waiting | _Noted | Mended](math.inf)
        self._unacknowledged: dict[tuple[str, orders.Order], int] = {}
        self._partners = Partners(
            node, rack, partners, copies, self._link, self._holders, self._dropped
        )
        self.mender = Mender(
            tree, tier, self._partners, copies, self._to_line.send_nowait, self._open_content,
            self._tell_directories,
        )  # fmt: skip
        self._chases = chase
        self._follower = Follower(tree, tier, self._chosen_links)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve the line until cancelled."""
        self._resubmit_noted()
        self._resubmit_bare()
        for node in self._tree.captured():
            if node.writers:  # open since before this daemon
                self.follow(node)
        async with trio.open_nursery() as nursery:
            self._partners.start(nursery)
            nursery.start_soon(self._review)
            nursery.start_soon(self._follower.run)
            nursery.start_soon(self.mender.run)
            task_status.started()
            async for item in self._line:
                await self._serve(item)

    # --- what others ask of it ------------------------------------------------------------------

    @property
    def chosen(self) -> tuple[str, ...]:
        """The partners that get copies at present."""
        return self._partners.chosen

    def replicate(self, node: Node) -> None:
        """Put the present version of a file at the end of the line."""
        self._enqueue(node, self._partners.chosen)

    def follow(self, node: Node) -> None:
        """A program begins to write: what it leaves behind can be sent ahead of its close."""
        if self._chases:
            self._follower.follow(node)

    def order(self, action: Action) -> None:
        """Put a change of names at the end of the line, for every partner."""
        for order in self._catalogue.orders_for(action):
            self._to_line.send_nowait(self._noted(order))

    def mark_durable(self, node: Node) -> None:
        """The shared file system has the present version: replicas may go for room."""
        if node.life is not None and node.life.holders():
            for path in self._tree.paths_of(node):
                order = orders.Durable(self._volume, path, self._catalogue.version(node))
                self._to_line.send_nowait(_Noted(order, {}))

    def reports(self) -> list[PeerReport]:
        """The partners, in the order of preference."""
        return [
            PeerReport(link.name, link.address, link.state, link.behind_bytes)
            for link in self._partners.links.values()
        ]

    def problems(self) -> list[Problem]:
        """What a person should know."""
        return [
            Problem(
                "PeerUnreachable" if link.state == "down" else "PeerTrouble",
                f"{link.name} at {link.address}: {link.last_error or 'no connection'}",
                f"look after cachexfs-peer on {link.name}",
            )
            for link in self._partners.links.values()
            if link.state != "up"
        ]

    # --- the line -------------------------------------------------------------------------------

    def _enqueue(self, node: Node, partners: tuple[str, ...]) -> None:
        if node.life is not None and node.names and partners:
            path, *others = self._tree.paths_of(node)
            version = node.life.version
            self._to_line.send_nowait(_Waiting(node.ino, version, path, partners, tuple(others)))

    async def _serve(self, item: _Waiting | _Noted | Mended) -> None:
        if isinstance(item, Mended):
            await self._serve_mended(item)
            return
        if isinstance(item, _Noted):
            for name, link in self._partners.links.items():
                self._submit_noted(link, item.order, item.numbers.get(name))
            return
        node = self._tree.nodes.get(item.ino)
        if node is None or not await self._sums.ensure(node, item.version):
            return
        for partner in item.partners:
            chosen = self._partners.links.get(partner)
            if chosen is not None:  # else no member any more: the review has found another
                chosen.submit(self._put(node, item, self._follower.take(node, chosen)))
                self._submit_links(chosen, item.path, item.others)
        self._follower.offered(node)

    async def _serve_mended(self, item: Mended) -> None:
        node, link = self._tree.nodes.get(item.ino), self._partners.links.get(item.partner)
        if item.blob is None and node is not None:
            await self._sums.ensure(node, item.version)
        opener = partial(self._open_content, item.ino, item.version, item.blob)
        fd = opener()
        if fd is None or node is None or link is None or not node.has_known_crcs:
            item.finished.set()  # it has changed, or who was to get it is no member any more
        else:
            replica = self._catalogue.file(node, item.path, item.blob)
            put = _FilePut(
                msgspec.structs.replace(replica, durable=True), opener, sent=item.sent,
                ino=item.ino, version=item.version, mended=item,
            )  # fmt: skip
            link.submit(put)
            self._submit_links(link, item.path, self._tree.paths_of(node))
        if fd is not None:
            os.close(fd)

    def _submit_links(self, link: PeerLink, path: bytes, others: Iterable[bytes]) -> None:
        """What was sent under one name of a file is its content under all of them."""
        for other in others:
            if other != path:
                link.submit(orders.Link(self._volume, path, other))

    def _put(self, node: Node, item: _Waiting, sent: Sent) -> _FilePut:
        replica = self._catalogue.file(node, item.path)
        opener = partial(self._open_content, item.ino, item.version)
        return _FilePut(
            replica, opener, sent=sent, on_changed=partial(self._judge, item, sent),
            ino=item.ino, version=item.version,
        )  # fmt: skip

    def _judge(self, item: _Waiting, sent: Sent, changed: int) -> None:
        """A partner has compared what was sent ahead of a file with what it has become."""
        log.info(
            "%s: %d chunks were sent ahead, %d of them again",
            item.path.decode(errors="replace"), len(sent.chunks), changed,
        )  # fmt: skip
        if not is_steady(changed):
            self._follower.give_up(item.ino)

    def _open_content(self, ino: int, version: int, blob: int | None = None) -> int | None:
        """The content of a version, in `blob` if that is given."""
        node = self._tree.nodes.get(ino)
        life = node.life if node is not None else None
        if node is None or life is None or not node.names or life.version != version:
            return None
        if blob is None and is_present(node, version):
            blob = node.blob
        try:
            return None if blob is None else self._tier.open(blob, os.O_RDONLY)
        except FileNotFoundError:  # it was given up when the partner went away
            return None

    def _done(self, peer: str, order: orders.Order, outcome: orders.Outcome) -> None:
        if (number := self._unacknowledged.pop((peer, order), None)) is not None:
            self._journal.delivered(number)
        if isinstance(order, _FilePut) and order.mended is not None:
            order.mended.finished.set()
        if outcome.kind == "refused" and not isinstance(order, orders.Durable):
            log.warning("%s refuses: %s: %s", peer, outcome.code, outcome.detail)
        if isinstance(order, _FilePut) and outcome == orders.CHANGED:
            log.info("%r changed while it was sent to %s", order.replica.path, peer)
        if isinstance(order, _FilePut) and outcome.kind == "acked":
            node = self._tree.nodes.get(order.ino)
            if node is not None:
                self._observer.acknowledged(node, order.version, peer)

    def _forgotten(self, peer: str) -> None:
        """A peer came back without its store: what it held is not replicated there any more."""
        log.warning("%s came back without its replicas", peer)
        self._forget_replicas(peer)
        self._resubmit_bare()

    def _forget_replicas(self, peer: str) -> None:
        for node in list(self._tree.captured()):
            if node.life is not None and node.life.replicas.get(peer):
                self._observer.replica_lost(node, peer)
        self.mender.look_again()

    # --- changes of names -----------------------------------------------------------------------

    def _noted(self, order: orders.Order) -> _Noted:
        if isinstance(order, orders.Put | orders.Attrs | orders.Durable):
            return _Noted(order, {})
        message = msgspec.msgpack.encode(order.numbered(0))
        return _Noted(
            order, {name: self._journal.post(name, message) for name in self._partners.links}
        )

    def _resubmit_noted(self) -> None:
        for name, link in self._partners.links.items():
            for number, message in self._journal.outbox(name):
                self._submit_noted(link, from_message(message), number)

    def _resubmit_bare(self) -> None:
        """Links and directories that the shared file system does not have yet, parents first.

        They have no content whose replicas are counted, so they are sent whenever a partner may
        lack them.
        """
        bare = {
            self._tree.path(slot): node
            for node in self._tree.nodes.values()
            if node.kind in ("directory", "symlink")
            for slot in node.names
            if (binding := self._tree.binding(slot)) and binding.ino == node.ino
        }
        for path, node in sorted(bare.items(), key=lambda item: item[0]):
            order = orders.Put(self._catalogue.bare(node, path))
            self._to_line.send_nowait(_Noted(order, {}))

    def _tell_directories(self, nodes: Iterable[Node]) -> None:
        """A partner that is new has not seen the directories being made."""
        for node in above(self._tree, nodes):
            order = orders.Put(self._catalogue.bare(node, self._tree.path_of(node)))
            self._to_line.send_nowait(_Noted(order, {}))

    def _submit_noted(self, link: PeerLink, order: orders.Order, number: int | None) -> None:
        if number is not None:
            self._unacknowledged[link.name, order] = number
        link.submit(order)

    # --- partners -------------------------------------------------------------------------------

    def members_changed(self, members: Sequence[Member]) -> None:
        """Others are members now."""
        self._partners.take(members)

    def _link(self, member: Member) -> PeerLink:
        return PeerLink(
            member.name,
            member.address,
            self._node,
            self._secret,
            on_done=partial(self._done, member.name),
            on_forgotten=partial(self._forgotten, member.name),
            on_time=self._tree.clock.heard,
            ssl_context=self._ssl_context,
            compression=self._compression,
        )

    def _chosen_links(self) -> list[PeerLink]:
        return [
            link for name, link in self._partners.links.items() if name in self._partners.chosen
        ]

    def _holders(self) -> set[str]:
        """The members that hold something which is not durable yet."""
        return {
            peer
            for node in self._tree.captured()
            if node.life is not None and node.state < State.DURABLE
            for peer in node.life.replicas
        }

    def _dropped(self, peer: str) -> None:
        """A link is gone for good: nothing that it holds counts, nothing is kept for it."""
        for number, _ in self._journal.outbox(peer):
            self._journal.delivered(number)
        for key in [key for key in self._unacknowledged if key[0] == peer]:
            del self._unacknowledged[key]
        self._forget_replicas(peer)

    async def _review(self) -> None:
        """A partner that is down is replaced, and what it should have got goes to another."""
        while True:
            await trio.sleep(_REVIEW_EVERY_S)
            if added := self._partners.review():
                log.info("partners are now: %s", ", ".join(self._partners.chosen))
                self._catch_up(added)
                self._resubmit_bare()

    def _catch_up(self, partners: tuple[str, ...]) -> None:
        """What is durable can wait: the mender sends it."""
        waiting = [
            node
            for node in self._tree.captured()
            if State.CAPTURED <= node.state < State.DURABLE and node.blob is not None
        ]
        self._tell_directories(waiting)
        for node in waiting:
            self._enqueue(node, partners)


class NoPartners:
    """The replicator of a node that has none."""

    chosen: tuple[str, ...] = ()

    def follow(self, node: Node) -> None:
        """Nothing."""

    def replicate(self, node: Node) -> None:
        """Nothing."""

    def order(self, action: Action) -> None:
        """Nothing."""

    def mark_durable(self, node: Node) -> None:
        """Nothing."""

    def reports(self) -> list[PeerReport]:
        """None."""
        return []

    def problems(self) -> list[Problem]:
        """None."""
        return []
