"""What the engine is told of the nodes: how many GPUs each offers, and which take no job. Pure.

GPUs that Slurm has given to jobs that lazerd does not steer are not on offer: a node is reported
smaller for as long. It is not made smaller than what lazerd's own jobs hold of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from lazerd.backend.protocol import NodeDrained, NodeUp
from lazerd.backend.slurm.records import SlurmJob, SlurmNode
from lazerd.backend.slurm.roster import Roster
from lazerd.model.cluster import Placement


class Nodes:
    """What has been reported of each node, so that only what is different is."""

    def __init__(self, roster: Roster, partitions: frozenset[str]) -> None:
        self._roster = roster
        self._partitions = partitions
        self._offered: dict[int, int] = {}
        self._closed: dict[int, str] = {}
        self.widest = 0

    def look(
        self,
        nodes: Sequence[SlurmNode],
        others: Iterable[SlurmJob],
        own: Iterable[Placement],
    ) -> list[NodeUp | NodeDrained]:
        """Reports about what has changed. `others` are jobs that lazerd does not steer."""
        mine = [n for n in nodes if n.gpus and self._partitions.intersection(n.partitions)]
        self._roster.enrol(node.name for node in mine)
        self.widest = max([self.widest, *(node.gpus for node in mine)])
        foreign = Counter[str]()
        for job in others:
            if job.is_running or job.is_completing:
                foreign.update({held.node: held.gpus for held in job.held})
        held_here = Counter[int]()
        for placement in own:
            held_here.update(dict(placement))
        reports: list[NodeUp | NodeDrained] = []
        for node in mine:
            number = self._roster.number(node.name)
            assert number is not None
            reports += self._one(node, number, node.gpus - foreign[node.name], held_here[number])
        return reports + self._vanished({node.name for node in mine})

    def _one(
        self, node: SlurmNode, number: int, spare: int, held: int
    ) -> list[NodeUp | NodeDrained]:
        why, before = node.why, self._offered.get(number)
        offered = max(spare, held)
        reports: list[NodeUp | NodeDrained] = []
        if before != offered or (number in self._closed and not why):
            reports.append(NodeUp(number, offered, node.name))
            self._offered[number] = offered
            self._closed.pop(number, None)
        if why and self._closed.get(number) != why:
            reports.append(NodeDrained(number, why))
            self._closed[number] = why
        return reports

    def _vanished(self, seen: set[str]) -> list[NodeUp | NodeDrained]:
        """Nodes that slurm.conf no longer has."""
        reports: list[NodeUp | NodeDrained] = []
        for number, name in enumerate(self._roster.names):
            if name not in seen and number in self._offered and number not in self._closed:
                self._closed[number] = f"{name} is no longer in the partitions"
                reports.append(NodeDrained(number, self._closed[number]))
        return reports
