"""Keeps an owner and the holders of its replicas from committing one version twice.

A holder that has not heard of an owner for `[peer] adopt_after` commits what the owner has not
(`cachexfs.peers.adoption`). So an owner that commits something half that old or older asks for the
claim first: what is younger no holder can have begun. An owner that was away finds what was adopted
meanwhile, and leaves it as it is.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cachexfs import claims
from cachexfs.clock import Clock

SWEEP_EVERY_S = 3600.0
"""Claims are remembered for a day, and there are few."""


class Adopted(Exception):
    """A holder has committed this version: it needs no commit any more."""


class Fence:
    """`node`: this owner. `after_s`: the age from which on a claim is needed."""

    def __init__(self, source: Path, node: str, after_s: float, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._node = node
        self._after_s = after_s

    def mark(self) -> None:
        """Say that the source is one, so that holders commit to it; forget claims of long ago.

        Blocks; raises OSError.
        """
        claims.mark(self._source)
        claims.sweep(self._source)

    @contextmanager
    def around_commit(self, settled_at_ns: int, size_bytes: int) -> Iterator[None]:
        """For the time of a commit, in its thread. Raises `Adopted`, OSError (EBUSY: wait)."""
        if not settled_at_ns or self._clock.now_ns() - settled_at_ns < self._after_s * 1e9:
            yield
            return
        claims.mark(self._source)
        digest = claims.digest_of(self._node, settled_at_ns, size_bytes)
        claim = claims.take(self._source, digest, self._node)
        if claim == "done":
            raise Adopted
        if isinstance(claim, str):
            raise OSError(errno.EBUSY, "a holder of a replica is about to commit it")
        try:
            yield
        except BaseException:
            claim.release()
            raise
        claim.done()
