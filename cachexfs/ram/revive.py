"""After the daemon died: what the journal and the blobs together still hold.

| the journal says | the blob is | then |
|---|---|---|
| settled (closed, fsynced, renamed) | there | the file is as it was; its way goes on |
| settled once, written since | there | what was promised is in it: settled as it is now |
| never settled | there or not | the program never finished it: dropped |
| any | gone | lost, unless a peer or the shared file system has it |
| no node refers to it | there | deleted |
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from cachexfs.durability.states import State
from cachexfs.ram.node import Node
from cachexfs.ram.tier import Tier
from cachexfs.ram.tree import Tree

log = logging.getLogger(__name__)


def revive(tree: Tree, tier: Tier, *, is_taken_over: bool = False) -> list[Node]:
    """Put tree and tier in agreement; returns the nodes whose blob is gone.

    `is_taken_over`: the mount outlived the daemon. Then programs still have files open, which are
    neither finished nor forgotten.
    """
    nodes = list(tree.nodes.values())
    for node in nodes:
        node.lookups = 0
        if not is_taken_over:
            node.opens = node.writers = 0
            node.backing_id = None
            node.counted = []  # a new mount numbers its requests anew
    for node in nodes:
        is_over = node.state is State.GONE or _was_never_finished(node) or _has_no_name(node)
        if node.opens == 0 and is_over:
            _drop(tree, tier, node)
    _delete_orphans(tier, tree.nodes.values())
    missing = [n for n in tree.nodes.values() if n.blob is not None and not tier.holds(n.blob)]
    for node in missing:
        node.blob = None
    return missing


def unfinished(tree: Tree) -> list[Node]:
    """The files whose way to safety has to be taken up again, in the order of settling."""
    waiting = [
        node
        for node in tree.captured()
        if node.names and node.state in (State.OPEN, State.CAPTURED, State.REPLICATED)
    ]
    return sorted(waiting, key=lambda node: (node.settled_at_ns, node.ino))


def _was_never_finished(node: Node) -> bool:
    return node.life is not None and node.life.settled == 0


def _has_no_name(node: Node) -> bool:
    """Unlinked while a program had it open; that program's descriptor is gone."""
    return node.life is not None and not node.names


def _drop(tree: Tree, tier: Tier, node: Node) -> None:
    if node.names:
        log.warning("%s was still being written and is dropped", tree.path_of(node).decode())
    for slot in list(node.names):
        binding = tree.binding(slot)
        if binding and binding.ino == node.ino:
            tree.release(slot)
    if node.blob is not None:
        tier.delete(node.blob)
    tree.drop(node)


def _delete_orphans(tier: Tier, nodes: Iterable[Node]) -> None:
    used = {node.blob for node in nodes} | {b for node in nodes for b in node.retained.values()}
    for blob in tier.blobs() - used:
        tier.delete(blob)
