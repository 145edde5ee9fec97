"""A holder finishes what an owner that died has begun: it commits what is not durable yet.

    an owner has not been heard of for `adopt_after_s`, nor been seen to live (`suspicion`)
      -> its replicas, oldest close first (what comes after `latest` must not come before it):
         the homes are told who has it now, and say whether somebody else's change counts instead
         the claim is taken on the source (`cachexfs.claims`)       once, whoever else tries
         copied to a hidden name, checked, renamed into place (`committing`)
         the claim is done, the replica is durable, the homes forget the name

Whatever fails is tried again; an owner that is heard of again goes on by itself, and finds the
claims.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import trio

from cachexfs import claims
from cachexfs.peers import messages as m
from cachexfs.peers.committing import Result, commit
from cachexfs.peers.homes import Homes
from cachexfs.peers.refusal import Refusal
from cachexfs.peers.store import Store
from cachexfs.peers.suspicion import Suspicion

LOOK_EVERY_S = 1.0
REMEMBERED = 200
"""Adopted files that are kept for `status`."""
FILE_NAME = "adopted.json"
_MAY_NOT = {errno.EROFS, errno.EACCES, errno.EPERM}

T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Candidate:
    """`stamp`: that of its close, as the homes know it. `counts`: they know it as the last close of
    its name."""

    replica: m.Replica
    source: Path
    stamp: int
    counts: bool = False


class Adoption:
    """`heard`: when each owner was heard of last, on trio's clock. `homes_of`: by volume."""

    def __init__(
        self,
        store: Store,
        node: str,
        heard: dict[str, float],
        homes_of: Callable[[str], Homes | None],
        report_to: Path,
        adopt_after_s: float,
        limiter: trio.CapacityLimiter,
    ) -> None:
        self._store = store
        self._node = node
        self._heard = heard
        self._homes_of = homes_of
        self._report_to = report_to
        self._adopt_after_s = adopt_after_s
        self._limiter = limiter
        self._begun_at_s = 0.0
        self._said: dict[str, str] = {}
        self._suspicion = Suspicion(adopt_after_s, self._in_thread)

    async def run(self) -> None:
        """Until cancelled."""
        self._begun_at_s = trio.current_time()
        while True:
            await trio.sleep(LOOK_EVERY_S)
            await self.look()

    async def look(self) -> None:
        """Adopt what is to be adopted now."""
        replicas = await self._in_thread(self._store.not_durable)
        if not replicas:
            return
        for owner, volume in sorted({(each.owner, each.volume) for each in replicas}):
            if owner != self._node:
                theirs = [each for each in replicas if (each.owner, each.volume) == (owner, volume)]
                await self._look_after(owner, volume, theirs)

    async def _look_after(self, owner: str, volume: str, replicas: list[m.Replica]) -> None:
        try:
            is_dead = await self._suspicion.is_dead(owner, volume, self._silent_s(owner))
        except (OSError, ValueError) as error:
            self._say(owner, f"nothing of {owner} is committed yet: {error}")
            return
        done_before_ns = self._suspicion.done_before_ns(owner, volume)
        for replica in replicas:
            if replica.closed_at_ns < done_before_ns:
                log.info("%r of %s is done, as %s has left word", replica.path, owner, owner)
                await self._in_thread(partial(self._store.made_durable, replica))
        if is_dead:
            left = [each for each in replicas if each.closed_at_ns >= done_before_ns]
            await self._adopt_all(owner, left)

    def _silent_s(self, owner: str) -> float:
        return trio.current_time() - self._heard.get(owner, self._begun_at_s)

    def _is_dead(self, owner: str) -> bool:
        return self._silent_s(owner) >= self._adopt_after_s

    async def _adopt_all(self, owner: str, replicas: Iterable[m.Replica]) -> None:
        for replica in sorted(replicas, key=lambda each: (each.closed_at_ns, each.path)):
            if not self._is_dead(owner):
                return
            candidate = await self._looked_up(replica)
            try:
                result = await self._adopt(candidate)
            except (OSError, Refusal) as error:
                text = f"{replica.path!r} of {owner} is not committed yet: {error}"
                self._say(owner, text + _advice(error))
                return
            if result is None:
                return
            await self._finish(candidate, result)

    def _say(self, owner: str, text: str) -> None:
        """It is tried again each second, and said again only when it is something else."""
        if self._said.get(owner) != text:
            self._said[owner] = text
            log.warning(text)

    async def _adopt(self, candidate: _Candidate) -> Result | None:
        """What came of one replica; None for nothing yet. Raises OSError, `Refusal`."""
        if await self._is_beaten(candidate):
            return "superseded"
        return await self._in_thread(partial(self._commit, candidate))

    async def _looked_up(self, replica: m.Replica) -> _Candidate:
        candidate = _Candidate(replica, Path(replica.volume), max(replica.closed_at_ns, 1))
        homes = self._homes_of(replica.volume)
        known = await self._known(homes, replica) if homes is not None and replica.parent else None
        return replace(candidate, stamp=known.stamp, counts=True) if known else candidate

    async def _known(self, homes: Homes, replica: m.Replica) -> m.Entry | None:
        """What the homes say of just this version: then it is the last close of its name."""
        name = replica.path.rpartition(b"/")[2]
        found = await homes.find(replica.parent, name, on_source=False)
        theirs = found.replica if found is not None else None
        is_it = (
            theirs is not None
            and theirs.kind == "file"
            and ((theirs.owner, theirs.version) == (replica.owner, replica.version))
        )
        return found if is_it else None

    async def _is_beaten(self, candidate: _Candidate) -> bool:
        """Whether another node has changed the name since. The homes learn who has it now."""
        replica = candidate.replica
        homes = self._homes_of(replica.volume)
        if homes is None or not replica.parent:
            return False
        entry = m.Entry(
            name=replica.path.rpartition(b"/")[2],
            stamp=candidate.stamp,
            replica=replica,
            holders=[self._node],
        )
        kept = await homes.register(replica.parent, [entry])
        return entry.name in kept.beaten_by

    def _commit(self, candidate: _Candidate) -> Result | None:
        replica, source = candidate.replica, candidate.source
        if not claims.is_marked(source):
            raise OSError(2, f"{source} is no source of ours here")
        digest = claims.digest_of(replica.owner, replica.version, replica.size_bytes)
        claim = claims.take(source, digest, self._node)
        if claim == "done":
            return "there"
        if isinstance(claim, str):
            return None
        opened = self._store.open(replica.volume, replica.path, replica.version)
        try:
            result = commit(source, opened.replica, opened.fd, claim, candidate.counts)
        except BaseException:
            claim.release()
            raise
        finally:
            os.close(opened.fd)
        if result == "damaged":
            claim.release()  # another holder may have it whole
        elif result != "overtaken":
            claim.done()
        return None if result == "overtaken" else result

    async def _finish(self, candidate: _Candidate, result: Result) -> None:
        replica = candidate.replica
        log.warning("%r of %s: %s", replica.path, replica.owner, result)
        name = replica.path.rpartition(b"/")[2]
        if result != "damaged":
            await self._in_thread(partial(self._store.made_durable, replica))
            homes = self._homes_of(replica.volume)
            if homes is not None and replica.parent:
                await homes.forget(replica.parent, [(name, candidate.stamp)])
        try:
            await self._in_thread(partial(self._note, replica, result))
        except OSError as error:
            self._say("", f"what was adopted cannot be noted for `cachexfs status`: {error}")

    def _note(self, replica: m.Replica, result: Result) -> None:
        """For `cachexfs status`, which asks no peer."""
        adopted = read(self._report_to)
        adopted.append(
            {
                "path": os.fsdecode(replica.path),
                "volume": replica.volume,
                "owner": replica.owner,
                "size_bytes": replica.size_bytes,
                "result": result,
                "at_s": round(time.time(), 3),
            }
        )
        self._report_to.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._report_to.with_suffix(".new")
        temporary.write_text(json.dumps(adopted[-REMEMBERED:]))
        temporary.replace(self._report_to)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(work, limiter=self._limiter)


def _advice(error: OSError | Refusal) -> str:
    may_not = isinstance(error, OSError) and error.errno in _MAY_NOT
    return (
        "; this peer may not write there (docs/systemd.md, adopt.conf.example)" if may_not else ""
    )


def read(path: Path) -> list[dict[str, Any]]:
    """The files that were adopted here, oldest first."""
    with suppress(OSError, ValueError):
        found: list[dict[str, Any]] = json.loads(path.read_text())
        return found
    return []
