"""Which way to safety each file takes, and how long each stretch of it took.

Stands between the tracker, which knows what programs did, and those who carry the bytes. The ways
(`[policy] path`), and what keeps the promises under each:

- *both*: replication and flush begin at once, side by side.
- *replica*: the flush waits until enough peers have the file. It keeps its place in the order
  of publishing meanwhile. It goes anyway when the replica takes `PATIENCE` times as long as
  forecast, and when a program waits for `durable`.
- *direct*: nothing is sent to the peers at first. Under `path = "direct"` nothing ever is, and the
  daemon has no replicator. Where `auto` chose it, the peers must still see a prefix of what the job
  did, or `latest` would be there without what it points to. So, while a file is on its direct way,
  the later ones of its job go direct too; before any change of names is told to the peers,
  all that was held back is sent first; and it is sent when it is late. Only a file that is new goes
  direct: where a peer may hold an older content of the file, that would be left there.

fsync returns at its level under every way: what is durable has reached `replicated` too.

All is called in the event loop, and only `clear_to_flush` and `run` await.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import trio

from cachexfs.config import PathPolicy
from cachexfs.durability.actions import Action, Attributes, Link, Mkdir, Rename
from cachexfs.durability.forecast import Way
from cachexfs.durability.paths import Chooser, Decision, Path, Traffic
from cachexfs.durability.states import Effect, State
from cachexfs.measurements.legs import Content, Legs
from cachexfs.ram.node import Node

PATIENCE = 2.0
"""Of the quantile that was forecast: beyond twice of it, something is wrong with the way chosen."""

PATIENCE_AT_LEAST_S, PATIENCE_AT_MOST_S = 1.0, 30.0
_LOOK_EVERY_S = 0.25
_DECIDE_EVERY_S = 0.5
"""Files of one class of sizes that settle within this time of each other get the same path."""


class Replicating(Protocol):
    """The replicator, as far as it is needed here. `chosen`: the peers that get copies."""

    @property
    def chosen(self) -> tuple[str, ...]: ...
    def replicate(self, node: Node) -> None: ...


@dataclass
class _Held:
    """A flush that waits for the replica."""

    until_s: float
    open: trio.Event = field(default_factory=trio.Event)


@dataclass(frozen=True)
class _Direct:
    """A file that goes straight to the shared file system, with nothing sent to the peers yet."""

    node: Node
    version: int
    until_s: float


class Ways:
    """The ways of all files of a mount. `replicator`: set by the daemon."""

    replicator: Replicating

    def __init__(
        self,
        legs: Legs,
        path: PathPolicy,
        quantile: float,
        copies_wanted: int,
        describe: Callable[[Node], str],
    ) -> None:
        self._legs = legs
        self._path = path
        self._copies_wanted = copies_wanted
        self._describe = describe
        self._chooser = Chooser(quantile, copies_wanted)
        self._decided: dict[int, tuple[float, Decision]] = {}
        self._held: dict[tuple[int, int], _Held] = {}
        self._direct: dict[int, _Direct] = {}

    # --- what programs did ----------------------------------------------------------------------

    def writing(self, node: Node) -> None:
        """A program begins to write a new content."""
        self._legs.writing(_content(node))

    def captured(self, node: Node) -> None:
        """The content is captured."""
        self._legs.captured(_content(node))

    def depart(self, node: Node, effects: tuple[Effect, ...]) -> tuple[Effect, ...]:
        """The file's way begins; returns what is to be set off now, in order."""
        if Effect.FLUSH not in effects:
            return effects
        content, decision = _content(node), self._decide(node)
        peers = self.replicator.chosen if Effect.REPLICATE in effects else ()
        limit_s = trio.current_time() + _patience_s(decision)
        if peers and decision.path == "direct":
            self._direct[node.ino] = _Direct(node, content.version, limit_s)
            self._legs.depart(content, decision.path, ())
            return tuple(effect for effect in effects if effect is not Effect.REPLICATE)
        if peers and decision.path == "replica":
            self._held[node.ino, content.version] = _Held(limit_s)
        self._legs.depart(content, decision.path, peers)
        return effects

    def cancelled(self, node: Node) -> None:
        """The content is not wanted any more: deleted, or written again."""
        self._legs.give_up(node.ino)
        self._direct.pop(node.ino, None)
        for ino, version in list(self._held):
            if ino == node.ino:
                self._let_flush(ino, version)

    def before_peers_are_told(self, action: Action, node: Node | None) -> None:
        """A change of names goes to the peers: what they have to know before goes first."""
        if isinstance(action, Attributes | Mkdir):
            return
        self.send_held_back()
        if node is not None and isinstance(action, Rename | Link):
            self._send_if_unknown(node)

    def somebody_waits_for(self, level: State) -> None:
        """No flush is held back from a program that waits for it."""
        if level is State.DURABLE:
            for ino, version in list(self._held):
                self._let_flush(ino, version)

    # --- what became of it ----------------------------------------------------------------------

    async def clear_to_flush(self, ino: int, version: int) -> None:
        """Return when the file may be copied to the shared file system."""
        held = self._held.get((ino, version))
        if held is not None:
            await held.open.wait()

    def copied(self, node: Node, version: int) -> None:
        """Copied, and its turn has come (a small one: its turn has come); now it is committed."""
        self._legs.copied(node.ino, version)

    def acknowledged(self, node: Node, version: int, peer: str) -> None:
        """A peer has it."""
        self._legs.acknowledged(node.ino, version, peer)
        if node.life is not None and node.life.reached(State.REPLICATED, version):
            if len(node.life.holders()) >= self._copies_wanted:
                self._legs.replicated(node.ino, version)
            self._let_flush(node.ino, version)

    def committed(self, node: Node, version: int) -> None:
        """The shared file system has it."""
        self._legs.committed(node.ino, version)
        direct = self._direct.get(node.ino)
        if direct is not None and direct.version == version:
            del self._direct[node.ino]

    def send_held_back(self) -> None:
        """Files that went direct are sent to the peers after all, in the order of their closes."""
        held, self._direct = list(self._direct.values()), {}
        for direct in held:
            life = direct.node.life
            if life is not None and life.version == direct.version:
                self._legs.replicate(_content(direct.node), "both", self.replicator.chosen)
                self.replicator.replicate(direct.node)

    async def run(self) -> None:
        """Lose patience with ways that take too long, until cancelled."""
        while True:
            await trio.sleep(_LOOK_EVERY_S)
            now_s = trio.current_time()
            for (ino, version), held in list(self._held.items()):
                if now_s >= held.until_s:
                    self._let_flush(ino, version)
            if any(now_s >= direct.until_s for direct in self._direct.values()):
                self.send_held_back()

    # --- forecasts ------------------------------------------------------------------------------

    def traffic(self, peers: tuple[str, ...]) -> Traffic:
        """What is still to be moved to these peers, and to the shared file system."""
        return self._legs.traffic(peers)

    def way_of(self, node: Node) -> Way:
        """What a file still has before it, with what has elapsed."""
        life = node.life
        if life is None or life.settled < life.version:
            return Way(self._copies_wanted)
        missing = self._copies_wanted - len(life.holders())
        return self._legs.way(node.ino, life.version, missing)

    def etas(self, node: Node) -> tuple[float | None, float | None]:
        """Median seconds until the file is replicated, and durable: 0 when it is, None unknown."""
        if node.life is None or node.state is State.DURABLE:
            return 0.0, 0.0
        if node.state not in (State.CAPTURED, State.REPLICATED):
            return None, None
        way, model = self.way_of(node), self._legs.model
        is_replicated = node.state is State.REPLICATED
        replicated_s = 0.0 if is_replicated else model.eta_replicated_s(way)
        return replicated_s, model.eta_durable_s(way)

    # --- small steps ----------------------------------------------------------------------------

    def _decide(self, node: Node) -> Decision:
        size_bytes, traffic = _content(node).size_bytes, self._legs.traffic(self.replicator.chosen)
        if not traffic.peers:
            return self._said("direct", "there are no peers", size_bytes)
        if self._path == "auto":
            decision = self._automatic(node, size_bytes, traffic)
            self._legs.recorder.decided(self._describe(node), decision)
            assert node.life is not None
            node.life.note(decision.sentence(), time.time())
            return decision
        # What the replica's time was forecast to be is the measure of patience with a held flush.
        offers = self._recent(size_bytes, traffic).offers if self._path == "replica" else ()
        return Decision(self._path, "as configured", size_bytes, self._chooser.quantile, offers)

    def _automatic(self, node: Node, size_bytes: int, traffic: Traffic) -> Decision:
        if any(direct.node.job == node.job for direct in self._direct.values()):
            why = "a file before it in its job is still on that way"
            return self._said("direct", why, size_bytes)
        decision = self._recent(size_bytes, traffic)
        if decision.path == "direct" and not _is_new(node):
            return self._said("both", "a peer may hold an older content", size_bytes)
        return decision

    def _said(self, path: Path, why: str, size_bytes: int) -> Decision:
        return Decision(path, why, size_bytes, self._chooser.quantile)

    def _recent(self, size_bytes: int, traffic: Traffic) -> Decision:
        kind, now_s = max(size_bytes, 1).bit_length(), trio.current_time()
        at_s, decision = self._decided.get(kind, (0.0, None))
        if decision is None or now_s - at_s > _DECIDE_EVERY_S:
            decision = self._chooser.choose(self._legs.model, size_bytes, traffic)
            self._decided[kind] = (now_s, decision)
        return decision

    def _let_flush(self, ino: int, version: int) -> None:
        held = self._held.pop((ino, version), None)
        if held is not None:
            self._legs.flush(ino, version, "replica")
            held.open.set()

    def _send_if_unknown(self, node: Node) -> None:
        """A file that became durable directly gets another name: the peers must have it first.

        They would keep what they have under that name, and `latest` would be an old one there.
        """
        life = node.life
        if self._path != "auto" or life is None or node.blob is None or life.holders():
            return
        if life.state is State.DURABLE:
            self.replicator.replicate(node)


def _content(node: Node) -> Content:
    assert node.life is not None
    size_bytes = node.settled_as.size_bytes if node.settled_as else 0
    return Content(node.ino, node.life.version, size_bytes, node.job)


def _is_new(node: Node) -> bool:
    """Whether no peer can hold an older content of it."""
    return node.origin is None and node.life is not None and not node.life.replicas


def _patience_s(decision: Decision) -> float:
    promised = [offer.safe_s for offer in decision.offers if offer.path == decision.path]
    longest_s = PATIENCE * promised[0] if promised else PATIENCE_AT_LEAST_S
    return min(max(longest_s, PATIENCE_AT_LEAST_S), PATIENCE_AT_MOST_S)


class Straight:
    """Every way at once, and nothing measured: for a tracker that was given no `Ways`."""

    def writing(self, node: Node) -> None:
        """Nothing."""

    def captured(self, node: Node) -> None:
        """Nothing."""

    def depart(self, node: Node, effects: tuple[Effect, ...]) -> tuple[Effect, ...]:
        """All of it, now."""
        return effects

    def cancelled(self, node: Node) -> None:
        """Nothing."""

    def before_peers_are_told(self, action: Action, node: Node | None) -> None:
        """Nothing."""

    def somebody_waits_for(self, level: State) -> None:
        """Nothing."""

    async def clear_to_flush(self, ino: int, version: int) -> None:
        """At once."""

    def copied(self, node: Node, version: int) -> None:
        """Nothing."""

    def acknowledged(self, node: Node, version: int, peer: str) -> None:
        """Nothing."""

    def committed(self, node: Node, version: int) -> None:
        """Nothing."""
