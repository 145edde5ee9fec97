"""How many GPUs of each node the engine is told of. Pure.

A backend says what a node offers, and knows of a change before the engine does: meanwhile the
engine may have placed a job on what is no longer there. So a node shrinks only by what the engine
holds free, and by the rest as jobs end.
"""

from __future__ import annotations

from dataclasses import dataclass

from lazerd.model.cluster import Cluster, Placement
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

    def stuck(self, placement: Placement) -> None:
        """The engine took these off by itself; their node offers them again when they are back."""
        for number, gpus in placement:
            self.node(number).offered -= gpus

    def due(self, cluster: Cluster, freed: dict[int, int]) -> list[NodeUp | NodeDrained]:
        """What the engine can be told now. `freed`: GPUs by node that come free in this cycle."""
        found: list[NodeUp | NodeDrained] = []
        for number, node in self.nodes.items():
            found += self._change(number, node, cluster, freed.get(number, 0))
        return found

    def _change(
        self, number: int, node: Node, cluster: Cluster, freed: int
    ) -> list[NodeUp | NodeDrained]:
        known = number < len(cluster.size)
        size, drained = (cluster.size[number], cluster.drained[number]) if known else (0, False)
        wanted = node.offered - node.guests
        if wanted < size:
            wanted = max(wanted, size - max(0, cluster.free[number] + freed))
        if wanted < size:
            # What is promised there may not fit any more; draining takes the promises back.
            return [NodeDrained(number), NodeUp(number, wanted)]
        if wanted > size or (drained and not node.drained):
            # It undrains the node as well; one that shall stay drained is drained by the next call.
            return [NodeUp(number, wanted)]
        return [NodeDrained(number)] if node.drained and not drained else []


def of_cluster(cluster: Cluster) -> Capacity:
    """The nodes as the engine knows them, until their backend says more."""
    capacity = Capacity()
    for number, size in enumerate(cluster.size):
        node = capacity.node(number)
        node.offered, node.drained = size, cluster.drained[number]
    return capacity
