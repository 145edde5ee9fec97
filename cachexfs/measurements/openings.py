"""How long programs wait to have a file opened. In the event loop; never waits.

    open(2)   ──▶ getattr, lookup, lookup, ... create ──▶ the capture begins
                  ▲ the first question of a chain              ▲ the opening ends

The kernel asks for the directories of a path and for the name before it makes a file, each question
when the one before it is answered, and some are answered by the shared file system, which is slow
while much is flushed to it. The thread sits in its system call all the time: so questions of one
thread that follow each other at once belong to one open. A chain is over when the thread was
silent for `SILENT_S`, or asks again for a name in the same directory or for the attributes of the
same object, which a walk along a path does not do.

What cannot be seen: how long the first question waited in the kernel before it was read, and that a
program looked at the directories of the path just before. The first is in no measurement, and left
to the correction of whole writes; the second makes an opening longer than it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from cachexfs.durability.paths import Traffic

SILENT_S = 0.02
"""From an answer to the next question: to be woken takes a thread some milliseconds on a busy
machine, and what a program does between two system calls may take any time."""

THREADS_AT_MOST = 256


class Opening(NamedTuple):
    """`since_s`: on the monotonic clock. `traffic`: what was under way then."""

    since_s: float
    traffic: Traffic


@dataclass
class _Chain:
    opening: Opening
    asked: set[Hashable] = field(default_factory=set)
    answered_s: float = 0.0
    under_way: int = 0


class Openings:
    """Of all threads that ask. `traffic`: tells what is under way; `opened`: is told the rest."""

    def __init__(
        self,
        traffic: Callable[[], Traffic] = Traffic,
        opened: Callable[[int, Opening], None] = lambda ino, opening: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._traffic = traffic
        self._opened = opened
        self._monotonic = monotonic
        self._chains: dict[int, _Chain] = {}

    @contextmanager
    def question(self, tid: int, what: Hashable) -> Iterator[None]:
        """A thread asks something, and is answered at the end of the block.

        `what`: the same for all questions of which a walk asks one.
        """
        chain = self._chain(tid, what)
        chain.asked.add(what)
        chain.under_way += 1
        try:
            yield
        finally:
            chain.under_way -= 1
            chain.answered_s = self._monotonic()

    def begun(self, tid: int) -> Opening:
        """A request to open arrives: when the opening began, by what the thread asked before."""
        chain = self._chains.pop(tid, None)
        if chain is None or self._is_over(chain):
            return Opening(self._monotonic(), self._traffic())
        return chain.opening

    def opened(self, ino: int, opening: Opening) -> None:
        """The file is open, and its capture has begun."""
        self._opened(ino, opening)

    def _chain(self, tid: int, what: Hashable) -> _Chain:
        chain = self._chains.pop(tid, None)
        if chain is None or what in chain.asked or self._is_over(chain):
            chain = _Chain(Opening(self._monotonic(), self._traffic()))
        self._chains[tid] = chain  # as the newest
        if len(self._chains) > THREADS_AT_MOST:
            del self._chains[next(iter(self._chains))]
        return chain

    def _is_over(self, chain: _Chain) -> bool:
        return not chain.under_way and self._monotonic() - chain.answered_s > SILENT_S
