"""Orders become rows: one group, inside one transaction of the manifest.

An order is carried out once: its id is compared with the last one of its session that was, in the
same transaction that makes its rows. So sending again what was done is harmless, also for orders
that cannot be done twice (an exchange).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from cachexfs.peers import messages as m
from cachexfs.peers.manifest import Manifest, Progress
from cachexfs.peers.part import Part
from cachexfs.peers.refusal import Refusal
from cachexfs.peers.replicas import Change, check_change


class Put(NamedTuple):
    """Make this replica whole; `part` is None where nothing had to be received."""

    replica: m.Replica
    part: Part | None


class Step(NamedTuple):
    """One order of one session. A `Refusal` stands for an order that is refused already."""

    session: bytes
    id: int
    order: Put | Change | Refusal


Sealed = int | OSError | None
"""A put's data file, or why there is none; None where nothing was received."""


class Batch:
    """Carries out steps in order. After a refusal with `retry` the rest of its session waits."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._progress: dict[bytes, Progress] = {}
        self._halted: set[bytes] = set()

    def run(self, steps: Sequence[Step], sealed: Sequence[Sealed]) -> list[Refusal | None]:
        """The outcome of each step; None is done. Raises `sqlite3.Error`."""
        outcomes = [self._one(step, data) for step, data in zip(steps, sealed, strict=True)]
        now_ns = time.time_ns()
        for session, progress in self._progress.items():
            self._manifest.advance(session, progress, now_ns)
        return outcomes

    def _one(self, step: Step, data: Sealed) -> Refusal | None:
        if step.session in self._halted:
            self._discard(data)
            return Refusal("StoreFailed", "an earlier order is to be sent again", retry=True)
        progress = self._progress_of(step.session)
        if step.id <= progress.done_id:
            self._discard(data)
            return _remembered(progress, step.id)
        try:
            self._carry_out(step, data)
        except Refusal as refusal:
            return self._refused(step, progress, refusal)
        self._progress[step.session] = progress._replace(done_id=step.id)
        return None

    def _refused(self, step: Step, progress: Progress, refusal: Refusal) -> Refusal:
        if refusal.retry:
            self._halted.add(step.session)
            return refusal
        refused = [*progress.refused, (step.id, refusal.code, refusal.detail)]
        self._progress[step.session] = Progress(step.id, refused)
        return refusal

    def _progress_of(self, session: bytes) -> Progress:
        if session not in self._progress:
            self._progress[session] = self._manifest.progress(session)
        return self._progress[session]

    def _carry_out(self, step: Step, data: Sealed) -> None:
        match step.order:
            case Refusal() as refusal:
                raise refusal
            case Put(replica, part):
                self._put(replica, part, data, step.session)
            case change:
                self._change(change, step.session)

    def _put(self, replica: m.Replica, part: Part | None, data: Sealed, by: bytes) -> None:
        if isinstance(data, OSError):
            raise Refusal("StoreFailed", str(data), retry=True)
        if replica.kind == "file" and part is None and not self._manifest.settled(replica, by):
            # It was held when it was offered, and is not any more: it must be sent after all.
            raise Refusal("StoreFailed", "what was held is gone", retry=True)
        self._manifest.put(replica, data, by)

    def _change(self, change: Change, by: bytes) -> None:
        check_change(change)
        match change:
            case m.Rename(_, volume, old, new, exchange):
                move = self._manifest.exchange if exchange else self._manifest.rename
                move(volume, old, new, by)
            case m.Unlink(_, volume, path, at_ns):
                self._manifest.unlink(volume, path, at_ns, by)
            case m.Link(_, volume, old, new):
                self._manifest.link(volume, old, new, by)
            case m.Durable(_, volume, path, version):
                self._manifest.mark_durable(volume, path, version)
            case m.Attrs():
                self._attrs(change)

    def _attrs(self, attrs: m.Attrs) -> None:
        self._manifest.replace(
            attrs.volume,
            attrs.path,
            mode=attrs.mode,
            uid=attrs.uid,
            gid=attrs.gid,
            atime_ns=attrs.atime_ns,
            mtime_ns=attrs.mtime_ns,
            xattrs=attrs.xattrs,
        )

    def _discard(self, data: Sealed) -> None:
        if isinstance(data, int):
            self._manifest.garbage.add(data)


def _remembered(progress: Progress, order_id: int) -> Refusal | None:
    for refused_id, code, detail in progress.refused:
        if refused_id == order_id:
            return Refusal(code, detail)
    return None
