"""What holds up the way to the shared file system, said for a person."""

from __future__ import annotations

import errno
import os

from cachexfs.durability.ledger import Entry
from cachexfs.pfs.publisher import Publisher
from cachexfs.ram.tree import Tree
from cachexfs.status.report import Problem

NAMED = 5
"""Entries that are named one by one: those that others wait for come first, the rest is number."""


class PublishingProblems:
    """The entries that fail, with their files and what waits behind them."""

    def __init__(self, publisher: Publisher, tree: Tree) -> None:
        self._publisher = publisher
        self._tree = tree

    def problems(self) -> list[Problem]:
        """One problem for each entry that fails at the moment, the first few."""
        held_up = self._publisher.held_up()
        behind = self._publisher.waiting() - len(held_up)
        return [self._describe(entry, error, behind) for entry, error in held_up[:NAMED]]

    def _describe(self, entry: Entry, error: OSError, behind: int) -> Problem:
        node = self._tree.nodes.get(entry.action.ino)
        name = os.fsdecode(self._tree.path_of(node)) if node else "a removed file"
        what = type(entry.action).__name__.lower()
        code = errno.errorcode.get(error.errno or 0, "error")
        waiting = f"; {behind} changes wait" if behind > 0 else ""
        return Problem(
            "PublishingHeldUp",
            f"{what} of {name}: {code} ({error.strerror}){waiting}",
            "it is tried again until it works; the files stay in RAM and at the peers",
        )
