"""What can be asked of a daemon: a table of verbs, each a function of its arguments."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import trio

from cachexfs.control.reporter import Reporter
from cachexfs.durability.states import LEVELS, State
from cachexfs.errors import CacheXError, TimedOut, UsageError
from cachexfs.mount.view import View
from cachexfs.ram.node import ROOT, Node
from cachexfs.ram.room import Room
from cachexfs.ram.tree import Tree

_POLL_S = 0.02
_ASK_S = 0.2
"""How often other nodes are asked about a file of theirs that somebody waits for."""


class Safety(Protocol):
    """The tracker, as far as it is needed here."""

    def state_of(self, node: Node) -> State: ...
    async def wait(self, node: Node, level: State) -> None: ...


class Pending(Protocol):
    """The publisher, as far as it is needed here."""

    def waiting(self) -> int: ...


class Checker(Protocol):
    """Holds the checksums of one file's copies against each other."""

    async def check(self, node: Node) -> dict[str, str]: ...


class Recovery(Protocol):
    """Brings back what the peers hold."""

    async def recover(self, peers: list[str], prefix: str) -> Any: ...


class Forecasting(Protocol):
    """What the durability model knows, for who computes with it."""

    def answer(self, nodes: list[Node]) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Verbs:
    """The verbs of one mount's daemon. Raises `CacheXError` for what it cannot do."""

    tree: Tree
    view: View
    room: Room
    safety: Safety
    pending: Pending
    reporter: Reporter
    checker: Checker
    recovery: Recovery
    hand_over: Callable[[], bool]
    foresight: Forecasting

    def table(self) -> dict[str, Callable[..., Awaitable[Any]]]:
        """Name -> function."""
        return {
            "report": self.report,
            "ls": self.ls,
            "story": self.story,
            "forecast": self.forecast,
            "wait": self.wait,
            "drain": self.drain,
            "verify": self.verify,
            "evict": self.evict,
            "pin": self.pin,
            "unpin": self.unpin,
            "recover": self.recover,
            "handover": self.handover,
        }

    async def report(self) -> Any:
        """How the mount is."""
        return msgspec.to_builtins(self.reporter.report())

    async def ls(self, paths: list[str]) -> Any:
        """The state of each file named, or below a directory named."""
        return msgspec.to_builtins([self.reporter.file(node) for node in await self._files(paths)])

    async def story(self, path: str) -> Any:
        """What happened to a file."""
        node = await self._node(path)
        return node.life.story() if node.life else []

    async def forecast(self, path: str = "") -> Any:
        """The model, and the files at and below a path that are not durable yet."""
        below = await self._node(path)
        files = [below] if below.kind == "file" else self.tree.captured()
        prefix = self.tree.path_of(below)
        return self.foresight.answer([n for n in files if n.names and self._is_below(n, prefix)])

    async def wait(self, paths: list[str], level: str, timeout_s: float | None = None) -> Any:
        """Answer when every file named, or below a directory named, has reached a level."""
        wanted = _level(level)
        nodes = await self._files(paths)
        with _limit(timeout_s):
            for node in nodes:
                await self._reached(node, wanted)
            return msgspec.to_builtins([self.reporter.file(node) for node in nodes])
        late = [node for node in nodes if node.names and self.safety.state_of(node) < wanted]
        raise TimedOut("; ".join(self._describe(node) for node in late) or "not yet")

    async def drain(self, level: str, timeout_s: float | None = None) -> Any:
        """Answer when nothing of this mount is less safe than a level."""
        wanted = _level(level)
        with _limit(timeout_s):
            while self._late(wanted):  # noqa: ASYNC110 - many files, no one event
                await trio.sleep(_POLL_S)
            return None
        late = self._late(wanted)
        raise TimedOut(
            f"{len(late)} files are not {level} yet: "
            + "; ".join(self._describe(node) for node in late[:5])
        )

    async def verify(self, paths: list[str]) -> Any:
        """The checksums of every copy of every file named: `"good"`, or what is wrong."""
        return [
            {"path": self._path(node), "copies": await self.checker.check(node)}
            for node in await self._files(paths)
        ]

    async def evict(self, paths: list[str]) -> Any:
        """Give up the RAM copies of durable files; answers how many bytes that freed."""
        return sum(self._evict(node) for node in await self._files(paths))

    async def pin(self, paths: list[str]) -> Any:
        """Keep the RAM copies of files."""
        return await self._set_pinned(paths, pinned=True)

    async def unpin(self, paths: list[str]) -> Any:
        """Let the RAM copies of files go when room is needed."""
        return await self._set_pinned(paths, pinned=False)

    async def recover(self, peers: list[str], prefix: str = "") -> Any:
        """Bring back what the peers hold."""
        return await self.recovery.recover(peers, prefix)

    async def handover(self) -> Any:
        """Make way for another daemon, while the mount stays. Answered before it happens."""
        if not self.hand_over():
            raise CacheXError("this mount has no keeper: unmount it and mount it again")
        return None

    # --- small steps ----------------------------------------------------------------------------

    def _evict(self, node: Node) -> int:
        if node.blob is None:
            return 0
        if node.state is not State.DURABLE:
            raise CacheXError(f"{self._path(node)} is {node.state.label}, not durable: it stays")
        if node.opens:
            raise CacheXError(f"{self._path(node)} is open: it stays")
        if self.room.is_busy(node):
            raise CacheXError(f"{self._path(node)} has changes on their way: it stays")
        size = self.reporter.size_of(node)
        self.room.evict(node)
        return size

    async def _set_pinned(self, paths: list[str], *, pinned: bool) -> int:
        nodes = await self._files(paths)
        for node in nodes:
            node.pinned = pinned
            if node.life is not None:
                self.tree.save(node)
        return len(nodes)

    async def _node(self, path: str) -> Node:
        """The node of a path below the root. Raises `CacheXError`."""
        ino = ROOT
        for name in filter(None, os.fsencode(path).split(b"/")):
            try:
                ino = (await self.view.child(ino, name)).node.ino
            except OSError as error:
                raise CacheXError(f"{path}: {error.strerror}") from None
        return self.tree.nodes[ino]

    async def _below(self, node: Node) -> list[Node]:
        """A file itself, or the files below a directory, by path."""
        if node.kind != "directory":
            return [node] if node.kind == "file" else []
        files: list[Node] = []
        for _, found in sorted((await self.view.entries(node.ino)).items()):
            files += await self._below(found.node)
        return files

    async def _files(self, paths: list[str]) -> list[Node]:
        return [file for path in paths for file in await self._below(await self._node(path))]

    async def _reached(self, node: Node, level: State) -> None:
        while node.names and self.safety.state_of(node) < level:
            if node.remote is not None:
                await trio.sleep(_ASK_S)
                node = await self._as_it_is(node)
            elif node.state in (State.OPEN, State.DURABLE):
                await trio.sleep(_POLL_S)  # until it is closed, or has its name there
            elif node.state is State.LOST:
                raise CacheXError(f"{self._path(node)} is lost")
            else:
                await self.safety.wait(node, level)

    async def _as_it_is(self, node: Node) -> Node:
        """What the name of another node's file stands for now."""
        slot = node.slot
        try:
            return (await self.view.child(*slot)).node if slot is not None else node
        except FileNotFoundError:
            return Node(ino=node.ino, kind=node.kind)  # it was removed: nothing to wait for

    def _late(self, level: State) -> list[Node]:
        # What only peers hold will not get any further from here, however long one waits.
        ours = (n for n in self.tree.captured() if n.names and n.blob is not None)
        late = [n for n in ours if State.LOST < n.state < level]
        if not late and level is State.DURABLE and self.pending.waiting():
            return [self.tree.root]
        return late

    def _describe(self, node: Node) -> str:
        if node.ino == ROOT:
            return "changes of names are still to be made on the shared file system"
        reason = f" ({node.reason})" if node.reason else ""
        return f"{self._path(node)} is {self.safety.state_of(node).label}{reason}"

    def _is_below(self, node: Node, prefix: bytes) -> bool:
        path = self.tree.path_of(node)
        return not prefix or path == prefix or path.startswith(prefix + b"/")

    def _path(self, node: Node) -> str:
        return os.fsdecode(self.tree.path_of(node))


def _level(level: str) -> State:
    try:
        return LEVELS[level]
    except KeyError:
        raise UsageError(f"{level!r} is not one of {', '.join(LEVELS)}") from None


def _limit(timeout_s: float | None) -> trio.CancelScope:
    return trio.CancelScope() if timeout_s is None else trio.move_on_after(timeout_s)
