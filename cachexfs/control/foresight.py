"""What the daemon tells a forecast: its model, where files stand, what is configured.

The distributions are not computed here: `cachexfs forecast` does that, with numpy and in its own
process. What is answered is what only the daemon knows.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec

from cachexfs.config import Config
from cachexfs.durability.calibration import Correction
from cachexfs.durability.forecast import Model, Way
from cachexfs.durability.latency.fit import PhaseFit
from cachexfs.durability.lost_work import Lifetime
from cachexfs.durability.paths import Traffic
from cachexfs.durability.states import State
from cachexfs.measurements.keeper import Keeper
from cachexfs.ram.node import Node
from cachexfs.ram.tree import Tree
from cachexfs.ways import Ways


class PendingFile(msgspec.Struct, frozen=True):
    """A file that is not durable yet. `settled_s`: since the epoch; 0 while it is open."""

    path: str
    state: str
    size_bytes: int
    job: str
    settled_s: float
    way: Way


class Knowledge(msgspec.Struct, frozen=True):
    """The answer. `store`: the file with the measurements; `traffic`: bytes still under way."""

    now_s: float
    store: str
    fitted_s: float
    path: str
    quantile: float
    copies_wanted: int
    peers: list[str]
    nodes: int
    mtbf_s: float | None
    restart_s: float
    fits: list[PhaseFit]
    lifetimes: list[Lifetime]
    pending: list[PendingFile]
    traffic: Traffic = Traffic()
    corrections: dict[str, Correction] = {}

    @classmethod
    def of(cls, answer: Any) -> Knowledge:
        """What came as JSON, which has no keys but strings."""
        return msgspec.convert(answer, cls, str_keys=True)

    def model(self) -> Model:
        """The model in force, as of now."""
        return Model(self.fits, self.corrections)


class Foresight:
    """Answers for one mount."""

    def __init__(self, config: Config, tree: Tree, ways: Ways, keeper: Keeper) -> None:
        self._config = config
        self._tree = tree
        self._ways = ways
        self._keeper = keeper

    def answer(self, nodes: list[Node]) -> dict[str, Any]:
        """`Knowledge` in plain types, with those of `nodes` that are on their way."""
        failures, peers = self._config.failures, self._ways.replicator.chosen
        known = Knowledge(
            now_s=time.time(),
            store=str(self._keeper.path.absolute()),
            fitted_s=self._keeper.fitted_s,
            path=self._config.policy.path,
            quantile=self._config.policy.quantile,
            copies_wanted=self._config.replication.replicas,
            peers=list(peers),
            nodes=failures.nodes or max(len(self._config.peers), 1),
            mtbf_s=None if failures.mtbf is None else float(failures.mtbf),
            restart_s=float(failures.restart),
            fits=self._keeper.recorder.model_now().fits_now(),
            lifetimes=self._keeper.lifetimes(),
            pending=[self._pending(node) for node in nodes if self._is_on_its_way(node)],
            traffic=self._ways.traffic(peers),
            corrections=dict(self._keeper.recorder.corrections),
        )
        made: dict[str, Any] = msgspec.to_builtins(known)
        return made

    def _is_on_its_way(self, node: Node) -> bool:
        return node.life is not None and State.LOST < node.state < State.DURABLE

    def _pending(self, node: Node) -> PendingFile:
        return PendingFile(
            self._tree.path_of(node).decode(errors="surrogateescape"),
            node.state.label,
            node.settled_as.size_bytes if node.settled_as else 0,
            node.job,
            node.settled_at_ns / 1e9,
            self._ways.way_of(node),
        )
