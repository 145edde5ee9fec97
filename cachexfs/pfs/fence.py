"""Keeps an owner and the holders of its replicas from committing one version twice.

A holder that has not heard of an owner for `[peer] adopt_after` commits what the owner has not
(`cachexfs.peers.adoption`). So an owner that commits something half that old or older asks for the
claim first: what is younger no holder can have begun. An owner that was away finds what was adopted
meanwhile, and leaves it as it is.

An owner may also be stopped between that and the rename. So it looks again just before it: a
version that has grown old meanwhile begins anew, and a claim that was overtaken ends it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
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

    def is_old(self, settled_at_ns: int) -> bool:
        """Whether a holder, or anybody else, may have brought a later version there meanwhile."""
        age_ns = self._clock.now_ns() - settled_at_ns
        return bool(settled_at_ns) and age_ns >= self._after_s * 1e9

    @contextmanager
    def around_commit(self, settled_at_ns: int, size_bytes: int) -> Iterator[Callable[[], None]]:
        """For the time of a commit, in its thread. What it yields is called before the rename.

        Both raise `Adopted`, OSError (EBUSY: try again later).
        """
        if not self.is_old(settled_at_ns):
            yield partial(self._check_age, settled_at_ns)
            return
        claims.mark(self._source)
        digest = claims.digest_of(self._node, settled_at_ns, size_bytes)
        claim = claims.take(self._source, digest, self._node)
        if claim == "done":
            raise Adopted
        if isinstance(claim, str):
            raise OSError(errno.EBUSY, "a holder of a replica is about to commit it")
        try:
            yield partial(_check_claim, claim)
        except BaseException:
            claim.release()
            raise
        claim.done()

    def _check_age(self, settled_at_ns: int) -> None:
        if self.is_old(settled_at_ns):
            raise OSError(errno.EBUSY, "it took so long that a holder may have begun")


def _check_claim(claim: claims.Claim) -> None:
    if not claim.is_ours():
        raise OSError(errno.EBUSY, "a holder of a replica has taken over")
