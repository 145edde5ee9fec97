"""A home at work: answers about its register, and tells nodes whose entries count no more."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable

import trio

from cachexfs.clock import Clock
from cachexfs.peers import messages as m
from cachexfs.peers.paths import MAX_NAME_BYTES
from cachexfs.peers.refusal import Refusal
from cachexfs.peers.register import Full, Key, Outcome, Register, gravestone
from cachexfs.peers.replicas import check_said

MAX_AT_ONCE = 1024
"""Entries in one message; an honest sender has `registrar.AT_ONCE`."""
REMEMBERED_NODES = 16_384

Request = m.Register | m.Forget | m.Missed | m.Find | m.FindAll
Push = Callable[[m.Message], None]
log = logging.getLogger(__name__)


class Home:
    """Whoever serves connections hands requests in; nothing here awaits."""

    def __init__(self, register: Register | None = None) -> None:
        self.register = register or Register()
        self.clock = Clock()
        self._pushes: OrderedDict[str, Push] = OrderedDict()

    def answer(self, request: Request, node: str, push: Push) -> m.Message:
        """What to say to `node`; `push` sends something to it later, over the same connection."""
        try:
            return self._answer(request, node, push)
        except Refusal as refusal:
            return m.Refused(request.id, refusal.code, refusal.detail, refusal.retry)

    def left(self, node: str, push: Push) -> None:
        """A connection is gone."""
        if self._pushes.get(node) == push:
            del self._pushes[node]

    def _answer(self, request: Request, node: str, push: Push) -> m.Message:
        now_s = trio.current_time()
        key = Key(request.volume, request.directory)
        match request:
            case m.Register():
                self._remember(node, push)
                beaten_by = self._register(key, request, node, now_s)
                return m.Registered(request.id, beaten_by, self.clock.now_ns())
            case m.Forget():
                for name, stamp in request.names[:MAX_AT_ONCE]:
                    self.register.forget(key, name, stamp, now_s, self.clock.now_ns())
                return m.Ack(request.id)
            case m.Missed():
                met = [self._met(key, each, node, now_s) for each in request.settled[:MAX_AT_ONCE]]
                others = [entry for entry in met if entry is not None]
                return m.Registered(request.id, others, self.clock.now_ns())
            case m.Find():
                entry = self.register.find(key, request.name, now_s)
                found = [] if entry is None else [entry]
                count = self.register.count_in(key)
                return m.Found(request.id, found, count, now_ns=self.clock.now_ns())
            case m.FindAll():
                entries, more = self.register.listing(key, request.after, now_s)
                return m.Found(request.id, entries, self.register.count_in(key), more)

    def _register(self, key: Key, request: m.Register, node: str, now_s: float) -> list[m.Entry]:
        if len(request.entries) > MAX_AT_ONCE:
            raise Refusal("BadReplica", f"more than {MAX_AT_ONCE} entries at a time")
        beaten_by = []
        for entry in request.entries:
            _check(entry)
            self.clock.heard(entry.stamp)
            try:
                by_owner = entry.replica.owner == node
                outcome = self.register.put(key, entry, now_s, by_owner=by_owner)
            except Full:
                raise Refusal("RegisterFull", retry=True) from None
            if outcome.beaten_by is not None:
                beaten_by.append(outcome.beaten_by)
            self._tell_displaced(key, entry, outcome, node)
        return beaten_by

    def _met(self, key: Key, settled: m.Settled, node: str, now_s: float) -> m.Entry | None:
        """What another node had of a name meanwhile; it is told too."""
        self.clock.heard(settled.stamp)
        other = self.register.met(key, node, settled)
        self.register.forget(key, settled.name, settled.stamp, now_s, settled.done_ns)
        if other is not None:
            entry = gravestone(key, settled.name, settled.stamp, node, settled.kind)
            self._push(key, entry, other.replica.owner)
        return other

    def _tell_displaced(self, key: Key, entry: m.Entry, outcome: Outcome, node: str) -> None:
        if outcome.displaced is not None and outcome.displaced.replica.owner != node:
            self._push(key, entry, outcome.displaced.replica.owner)

    def _push(self, key: Key, entry: m.Entry, owner: str) -> None:
        if (push := self._pushes.get(owner)) is not None:
            push(m.Superseded(key.volume, key.directory, entry))

    def _remember(self, node: str, push: Push) -> None:
        self._pushes[node] = push
        self._pushes.move_to_end(node)
        if len(self._pushes) > REMEMBERED_NODES:
            self._pushes.popitem(last=False)


def _check(entry: m.Entry) -> None:
    check_said(entry.replica)
    if len(entry.address) > MAX_NAME_BYTES + 8:
        raise Refusal("BadReplica", "an address that is none")
    if not 0 < len(entry.name) <= MAX_NAME_BYTES or b"/" in entry.name or b"\0" in entry.name:
        raise Refusal("BadPath", f"{entry.name[:80]!r} is no name")
    if len(entry.holders) > 16:
        raise Refusal("BadReplica", "more holders than there can be")
