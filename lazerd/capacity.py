"""How many GPUs of each node the engine is told of. Pure.

A backend says what a node offers, and knows of a change before the engine does: meanwhile the
engine may have placed a job on what is no longer there. So a node shrinks only by what the engine
holds free, and by the rest as jobs end.
"""

from __future__ import annotations

from dataclasses import dataclass

from lazerd.model.cluster import Cluster
from lazerd.model.events import NodeDrained, NodeUp


@dataclass(slots=True)
class Node:
    """A node as its backend describes it. `guests`: GPUs under jobs that are not steered."""

    name: str = ""
    offered: int = 0
    guests: int = 0
    drained: bool = False
    why: str = ""


class Capacity:
    """The nodes, by number."""

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}

    def node(self, number: int) -> Node:
        """A node, new or known."""
        return self.nodes.setdefault(number, Node())

    def due(self, cluster: Cluster) -> list[NodeUp | NodeDrained]:
        """What the engine can be told now; asked again after each cycle that frees GPUs."""
        found = (self._change(number, node, cluster) for number, node in self.nodes.items())
        return [event for event in found if event is not None]

    def _change(self, number: int, node: Node, cluster: Cluster) -> NodeUp | NodeDrained | None:
        known = number < len(cluster.size)
        size, drained = (cluster.size[number], cluster.drained[number]) if known else (0, False)
        wanted = node.offered - node.guests
        if wanted < size:
            wanted = max(wanted, size - max(0, cluster.free[number]))
        if wanted != size or (drained and not node.drained):
            # NodeUp also undrains; a node that is to stay drained is drained again by the next call.
            return NodeUp(number, wanted)
        return NodeDrained(number) if node.drained and not drained else None
