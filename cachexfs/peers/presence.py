"""A mount among others: what it tells, what it asks, what it serves and what it fetches.

Puts the parts together, and runs them; `node`, `root_ino` (0: not known yet) and `volume` are what
others know this mount and its source by.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from functools import partial

import trio

from cachexfs.config import Config, Member, split_address
from cachexfs.peers import tls
from cachexfs.peers.catalogue import Catalogue
from cachexfs.peers.elsewhere import Elsewhere
from cachexfs.peers.fetching import Fetching
from cachexfs.peers.greeting import Identity
from cachexfs.peers.homes import Homes
from cachexfs.peers.registrar import Registrar
from cachexfs.peers.serving import ReadServer
from cachexfs.peers.standins import StandIns
from cachexfs.peers.whereabouts import Whereabouts
from cachexfs.ram.node import Node
from cachexfs.ram.remote import Remote
from cachexfs.ram.room import Room
from cachexfs.ram.sums import Sums
from cachexfs.ram.tier import Tier
from cachexfs.ram.tree import Tree

log = logging.getLogger(__name__)


class Presence:
    """`run` must be running for anything to happen."""

    def __init__(
        self,
        config: Config,
        tree: Tree,
        tier: Tier,
        sums: Sums,
        room: Room,
        secret: bytes,
        *,
        volume: str,
        root_ino: Callable[[], int],
    ) -> None:
        node, contexts = config.node.name, tls.contexts(config.security)
        self._config = config
        self._members: tuple[Member, ...] = config.peers
        self._identity = Identity(node, secret, contexts.client)
        self._homes: Homes | None = None
        self._on_time = tree.clock.heard
        self._whereabouts: Whereabouts | None = None
        catalogue = Catalogue(tree, tier, node, volume, root_ino)
        self._volume = volume
        self.registrar = Registrar(tree, catalogue, node)
        self.elsewhere = Elsewhere(node, catalogue.key_of)
        self.stand_ins = StandIns(tree, volume, self._identity, lambda: self._members)
        self.fetching = Fetching(
            tier,
            room,
            self._identity,
            volume,
            self._addresses,
            partial(self._ask_again, tree),
            self.stand_ins.known,
            self.stand_ins.find,
        )
        self.reads = ReadServer(
            tree, tier, sums, catalogue, Identity(node, secret, contexts.server)
        )
        tree.on_binding = self.registrar.bound
        room.give_up_copies = self.fetching.give_up

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled; `started` when files can be read from here."""
        async with trio.open_nursery() as nursery:
            await self._listen(nursery)
            await nursery.start(self.fetching.run)
            self._homes = Homes(
                self._volume,
                self._home_members(),
                self._identity,
                nursery,
                self.registrar.superseded,
                self._came_back,
                self._on_time,
            )
            node = self._config.node.name
            self._whereabouts = Whereabouts(self._homes, node, self.registrar.address)
            self.registrar.homes = self.elsewhere.homes = self._homes
            nursery.start_soon(self.registrar.run)
            nursery.start_soon(self._whereabouts.run)
            task_status.started()

    def _came_back(self, member: str) -> None:
        """A member that was asked answers again."""
        self.registrar.came_back(member)
        if self._whereabouts is not None:
            self._whereabouts.came_back(member)

    def members_changed(self, members: Sequence[Member]) -> None:
        """Others are members now."""
        self._members = tuple(members)
        if self._homes is not None:
            self._homes.take(self._home_members())
            self.registrar.tell_all()

    def _home_members(self) -> tuple[Member, ...]:
        """Who can be a home: every member; all nodes must come to the same list."""
        return self._members

    async def _ask_again(self, tree: Tree, node: Node) -> Remote | None:
        slot = node.slot
        parent = tree.nodes.get(slot.parent) if slot is not None else None
        if slot is None or parent is None:
            return None
        return await self.elsewhere.find(parent, slot.name, on_source=False)

    def _addresses(self) -> dict[str, str]:
        return {member.name: member.address for member in self._members}

    async def _listen(self, nursery: trio.Nursery) -> None:
        """Serve reads on a port that the kernel picks, where others reach this node."""
        host = self._host()
        try:
            listeners = await trio.open_tcp_listeners(0, host=host)
        except OSError as error:
            log.warning("other nodes cannot read from here, only replicas: %s: %s", host, error)
            return
        serve = partial(trio.serve_listeners, self.reads.handle, listeners)
        await nursery.start(serve)
        port = listeners[0].socket.getsockname()[1]
        self.registrar.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def _host(self) -> str:
        """The host by which the other members know this node."""
        own = [member for member in self._members if member.name == self._config.node.name]
        if own:
            return split_address(own[0].address, "peers")[0]
        return socket.gethostname()
