"""Copies of durable files are made again when they went with a partner, or with its store.

What is not durable goes to a partner's successor at once (`replicator`). A durable file needs its
copies only when the shared file system falls silent, so this waits for its betters: chunks leave
when no order of the link is waiting (`ahead`), so much in a second and no more; a file's offer
comes when its chunks are there. Newest saves first, and nothing that a partner holds gives way.

Which files: those that had copies and have too few now, and of these all that are in RAM; of the
others those of the newest whole save of each job, if their content is to be had (`Contents`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import trio

from cachexfs.durability.checkpoints import Saved, checkpoints
from cachexfs.durability.checksum import CHUNK_BYTES
from cachexfs.durability.states import State
from cachexfs.peers.ahead import NOTHING, Sent
from cachexfs.peers.partners import Partners
from cachexfs.peers.sender import PeerLink
from cachexfs.ram.node import Node
from cachexfs.ram.tier import Tier
from cachexfs.ram.tree import Tree

LOOK_EVERY_S = 1.0
PATIENCE_S = 5.0
"""After the last change of who is there, and after the start: a peer that only restarts is back."""
AGAIN_S = 30.0
"""What could not be made again (no room, nobody has it) is looked at again after so long."""
RATE_BYTES_S = 128 << 20
"""How much of what is made again leaves in a second, all partners together."""
STEP_CHUNKS = 4
"""Chunks that may be on their way without having been counted against the rate."""
SMALL_FILES = 32
"""Files of less than a chunk that are offered together."""
_POLL_S = 0.02

log = logging.getLogger(__name__)


class Contents(Protocol):
    """Finds the content of files that are not in RAM any more."""

    async def bring(self, node: Node) -> int | None:
        """A blob with the content and attributes of a file, whoever has them; the caller deletes
        it. None when nobody has it, or there is no room."""


@dataclass(eq=False)
class Mended:
    """A file at its place in the line. `blob`: where its content is, if not where the tree says."""

    ino: int
    version: int
    path: bytes
    partner: str
    blob: int | None = None
    sent: Sent = NOTHING
    finished: trio.Event = field(default_factory=trio.Event)


class Mender:
    """`submit` puts a file into the line, `open_content` opens what is in RAM of a version, and
    `directories` sends those above paths. `contents`: set by the daemon."""

    contents: Contents | None = None

    def __init__(
        self,
        tree: Tree,
        tier: Tier,
        partners: Partners,
        copies: int,
        submit: Callable[[Mended], None],
        open_content: Callable[[int, int, int | None], int | None],
        directories: Callable[[Iterable[Node]], None],
    ) -> None:
        self._tree = tree
        self._tier = tier
        self._partners = partners
        self._copies = copies
        self._submit = submit
        self._open_content = open_content
        self._directories = directories
        self._seen: tuple[object, ...] = ()
        self._due_at_s = 0.0

    def look_again(self) -> None:
        """A copy was lost."""
        self._due_at_s = 0.0

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await trio.sleep(LOOK_EVERY_S)
            if self._is_due():
                await self._mend()

    def _is_due(self) -> bool:
        """Whether there may be something to do: the tree is not searched each time."""
        seen = (self._partners.chosen, frozenset(self._partners.living))
        now_s = trio.current_time()
        if seen != self._seen:
            self._seen, self._due_at_s = seen, now_s + PATIENCE_S
        if now_s < self._due_at_s:
            return False
        self._due_at_s = now_s + AGAIN_S
        return True

    async def _mend(self) -> None:
        for partner in self._partners.chosen:
            todo = lacking(self._tree.captured(), partner, self._partners.living, self._copies)
            link = self._partners.links.get(partner)
            if todo and link is not None and link.state == "up":
                log.info("%d durable files are to be copied to %s again", len(todo), partner)
                self._directories(todo)
                await self._send_all(link, todo)

    async def _send_all(self, link: PeerLink, todo: list[Node]) -> None:
        small: list[Node] = []
        for node in todo:
            if not (self._still_lacks(node, link) and _size(node) <= link.free_bytes):
                continue
            if node.blob is not None and _size(node) < CHUNK_BYTES:
                small.append(node)
                if len(small) < SMALL_FILES:
                    continue
            await self._send_small(link, small)
            small = []
            if node.blob is None or _size(node) >= CHUNK_BYTES:
                await self._send_large(link, node)
            if link.state != "up":
                self.look_again()
                return
        await self._send_small(link, small)

    def _still_lacks(self, node: Node, link: PeerLink) -> bool:
        """Who was away may be back, with all it had."""
        return _lacks(node, link.name, set(self._partners.living), self._copies)

    async def _send_small(self, link: PeerLink, nodes: list[Node]) -> None:
        await _until(lambda: not nodes or not link.behind_bytes, link)  # new data first
        places = [self._place(node, link) for node in nodes if node.life and node.names]
        for place in places:
            self._submit(place)
        for place in places:
            await _until(place.finished.is_set, link)
        await trio.sleep(sum(map(_size, nodes)) / RATE_BYTES_S)

    async def _send_large(self, link: PeerLink, node: Node) -> None:
        """A file of chunks, or one whose content has to be brought here first."""
        if node.life is None or not node.names:
            return
        place = self._place(node, link)
        if node.blob is None:
            place.blob = await self.contents.bring(node) if self.contents is not None else None
            if place.blob is None:
                return
        try:
            if await self._send_ahead(link, place, _size(node) // CHUNK_BYTES):
                place.sent = link.ahead.take(_key(place))
                place.path = self._tree.path_of(node)
                self._submit(place)
                await _until(place.finished.is_set, link)
        finally:
            link.scrap(_key(place))
            if place.blob is not None:
                self._tier.delete(place.blob)

    async def _send_ahead(self, link: PeerLink, place: Mended, chunks: int) -> bool:
        """Whether all whole chunks have left, and the file is still wanted."""

        def open_content() -> int | None:
            return self._open_content(place.ino, place.version, place.blob)

        for begin in range(0, chunks, STEP_CHUNKS):
            end, begun_s = min(chunks, begin + STEP_CHUNKS), trio.current_time()
            link.send_ahead(_key(place), 0, end, open_content)
            await _until(lambda: link.ahead.sent(_key(place)) >= end, link)  # noqa: B023 - awaited
            took_s = trio.current_time() - begun_s
            await trio.sleep(max(0.0, (end - begin) * CHUNK_BYTES / RATE_BYTES_S - took_s))
            if not self._is_wanted(place) or link.state != "up":
                return False
        return self._is_wanted(place)

    def _is_wanted(self, place: Mended) -> bool:
        node = self._tree.nodes.get(place.ino)
        is_same = node is not None and node.life is not None and node.life.version == place.version
        return is_same and node is not None and node.state is State.DURABLE and bool(node.names)

    def _place(self, node: Node, link: PeerLink) -> Mended:
        assert node.life is not None
        return Mended(node.ino, node.life.version, self._tree.path_of(node), link.name)


def lacking(nodes: Iterable[Node], partner: str, living: Iterable[str], copies: int) -> list[Node]:
    """The durable files that a partner is to get, newest first."""
    alive, durable = set(living), list(nodes)
    kept = newest_saves(durable)
    found = [
        node
        for node in durable
        if (node.blob is not None or node.ino in kept) and _lacks(node, partner, alive, copies)
    ]
    return sorted(found, key=lambda node: (-node.settled_at_ns, node.ino))


def _lacks(node: Node, partner: str, alive: set[str], copies: int) -> bool:
    """Whether a file is durable, once had copies, has too few now, and none at the partner."""
    life = node.life
    if life is None or node.state is not State.DURABLE or not node.names or not life.replicas:
        return False
    return partner not in life.holders() and len(alive & set(life.holders())) < copies


def newest_saves(nodes: Iterable[Node]) -> set[int]:
    """The files of each job's newest save that is whole on the shared file system, or later."""
    settled = [node for node in nodes if node.life is not None and node.settled_at_ns]
    begins: dict[str, float] = {}
    for save in checkpoints(map(_saved, settled)):
        if save.safe_s is not None:
            begins[save.job] = save.begin_s
    return {node.ino for node in settled if node.settled_at_ns / 1e9 >= begins.get(node.job, 0.0)}


def _saved(node: Node) -> Saved:
    at_s = node.settled_at_ns / 1e9
    is_durable = node.state is State.DURABLE
    return Saved(node.job, at_s, at_s, _size(node), at_s if is_durable else None)


def _size(node: Node) -> int:
    known = node.settled_as or node.signature
    return known.size_bytes if known is not None else 0


def _key(place: Mended) -> int:
    """What is sent ahead of a file that is being written has its number."""
    return -place.ino


async def _until(condition: Callable[[], bool], link: PeerLink) -> None:
    """Wait for something that a link does, as long as it can."""
    while not condition() and link.state == "up":  # noqa: ASYNC110 - a link has no event for it
        await trio.sleep(_POLL_S)


def above(tree: Tree, nodes: Iterable[Node]) -> Iterator[Node]:
    """The directories above files, each once, outermost first."""
    found: dict[int, Node] = {}
    for node in nodes:
        chain, slot = [], node.slot
        while slot is not None and slot.parent in tree.nodes and slot.parent not in found:
            parent = tree.nodes[slot.parent]
            chain.append(parent)
            slot = parent.slot
        found.update((parent.ino, parent) for parent in reversed(chain))
    return iter(node for node in found.values() if node.names)
