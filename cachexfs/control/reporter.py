"""The report of a mount, made from the tree, the tier and what their neighbours say."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cachexfs import __version__
from cachexfs.durability.states import State
from cachexfs.peers import adoption
from cachexfs.ram.node import Node
from cachexfs.ram.tier import Tier
from cachexfs.ram.tree import Tree
from cachexfs.status import report as r


class Session(Protocol):
    """How the kernel is served."""

    @property
    def data_path(self) -> r.DataPath: ...
    @property
    def reason(self) -> str: ...


class Partners(Protocol):
    """The replicator, as far as it is reported."""

    def reports(self) -> list[r.PeerReport]: ...
    def problems(self) -> list[r.Problem]: ...


class Safety(Protocol):
    """The tracker, as far as it is reported."""

    def state_of(self, node: Node) -> State: ...
    def flushed_bytes(self, node: Node) -> int: ...


class Outlooks(Protocol):
    """What the durability model says of a file: see `ways.py`."""

    def etas(self, node: Node) -> tuple[float | None, float | None]: ...


FORECAST_AT_MOST = 500
"""Files on their way whose times are forecast: 50 us each, and a report must not hold up others."""


@dataclass(frozen=True)
class Facts:
    """What does not change while a mount lives."""

    mountpoint: str
    source: str
    node: str
    fsync: str
    session: Session
    adopted_at: Path


class Reporter:
    """Reports. `problems` are the sources of problems, in the order in which they are shown."""

    def __init__(
        self,
        facts: Facts,
        tree: Tree,
        tier: Tier,
        partners: Partners,
        safety: Safety,
        problems: Sequence[Callable[[], list[r.Problem]]],
        outlooks: Outlooks,
    ) -> None:
        self._facts = facts
        self._tree = tree
        self._tier = tier
        self._partners = partners
        self._safety = safety
        self._problems = problems
        self._outlooks = outlooks

    def report(self) -> r.Report:
        """How the mount is now."""
        return r.Report(version=__version__, mounts=[self._mount()])

    def file(self, node: Node, *, forecast: bool = True) -> r.FileReport:
        """One file. Only files of ours have a state that can be less than durable."""
        life = node.life
        now_ns = self._tree.clock.now_ns()
        age = (now_ns - node.settled_at_ns) / 1e9 if node.settled_at_ns else 0.0
        eta_replicated_s, eta_durable_s = self._outlooks.etas(node) if forecast else (None, None)
        return r.FileReport(
            path=os.fsdecode(self._tree.path_of(node)),
            size_bytes=self.size_of(node),
            state=self._safety.state_of(node).label,
            flushed_bytes=self._safety.flushed_bytes(node),
            replicas=life.holders() if life else [],
            age_s=round(age, 3),
            eta_replicated_s=_rounded(eta_replicated_s),
            eta_durable_s=_rounded(eta_durable_s),
            reason=node.reason,
            job=node.job,
        )

    def size_of(self, node: Node) -> int:
        """The size of a file in bytes, as far as it is known without asking anybody."""
        if node.blob is not None:
            return self._tier.path(node.blob).stat().st_size
        return node.signature.size_bytes if node.signature else 0

    def _mount(self) -> r.MountReport:
        files = [node for node in self._tree.captured() if node.names]
        state_of = self._safety.state_of
        unsafe = [n for n in files if state_of(n) in (State.OPEN, State.CAPTURED)]
        late = [n for n in files if state_of(n) is not State.DURABLE]
        pending = [self.file(n, forecast=i < FORECAST_AT_MOST) for i, n in enumerate(late)]
        problems = [problem for source in self._problems for problem in source()]
        problems += self._lost(files) + self._only_at_peers(files)
        usage = self._tier.usage()
        return r.MountReport(
            mountpoint=self._facts.mountpoint,
            source=self._facts.source,
            node=self._facts.node,
            pid=os.getpid(),
            state=r.health(problems),
            data_path=self._facts.session.data_path,
            data_path_reason=self._facts.session.reason,
            fsync=self._facts.fsync,
            problems=problems,
            ram=r.Ram(*usage),
            unsafe_bytes=sum(self.size_of(node) for node in unsafe),
            oldest_unsafe_s=self._oldest_s(unsafe),
            peers=self._partners.reports(),
            files=r.Files(**self._counts(files)),
            pending=pending,
            adopted=self._adopted(),
        )

    def _adopted(self) -> list[r.AdoptedReport]:
        """What this node's store has brought to this source for nodes that died."""
        return [
            r.AdoptedReport(
                str(each["path"]), str(each["owner"]), int(each["size_bytes"]),
                str(each["result"]), float(each["at_s"]),
            )
            for each in adoption.read(self._facts.adopted_at)
            if each.get("volume") == self._facts.source
        ]  # fmt: skip

    def _counts(self, files: list[Node]) -> dict[str, int]:
        return dict(
            Counter(self._safety.state_of(n).label for n in files if n.state is not State.GONE)
        )

    def _oldest_s(self, unsafe: list[Node]) -> float | None:
        settled = [node.settled_at_ns for node in unsafe if node.settled_at_ns]
        now_ns = self._tree.clock.now_ns()
        return round((now_ns - min(settled)) / 1e9, 3) if settled else None

    def _only_at_peers(self, files: list[Node]) -> list[r.Problem]:
        return [
            r.Problem(
                "OnlyAtPeers",
                f"{os.fsdecode(self._tree.path_of(node))}: only {', '.join(node.life.holders())}",
                "bring it back with cachexfs recover",
            )
            for node in files
            if node.life and node.blob is None and node.state is State.REPLICATED
        ]

    def _lost(self, files: list[Node]) -> list[r.Problem]:
        return [
            r.Problem(
                "FileLost",
                f"{os.fsdecode(self._tree.path_of(node))}: no tier holds it any more",
                "recover it from an older checkpoint, then remove it",
            )
            for node in files
            if node.state is State.LOST
        ]


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
