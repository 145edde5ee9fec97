"""What to bring back, decided from what the peers say they hold. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cachexfs.peers.messages import Replica
from cachexfs.peers.paths import ancestors

Listings = Mapping[str, Sequence[Replica]]
"""Peer -> what it holds."""


class Wanted(NamedTuple):
    """The newest version of a path, and the peers that hold exactly this version, by name.

    `is_linked`: the same file is wanted at another path too.
    """

    replica: Replica
    holders: list[str]
    is_linked: bool = False


def plan(listings: Listings) -> list[Wanted]:
    """The newest version of each path, ordered so that directories come before what is in them.

    A tombstone that is newer than a path, on it or on a directory above it, leaves the path out:
    what was deleted does not come back because one peer missed the deletion.
    """
    newest = _newest(listings)
    wanted = [replica for replica in newest.values() if not _deleted(replica, newest)]
    held = _by_path(listings)
    files = Counter(_file_key(replica) for replica in wanted if _is_linkable(replica))
    return [
        Wanted(
            replica,
            [name for name, other in held[replica.path] if _same(replica, other)],
            _is_linkable(replica) and files[_file_key(replica)] > 1,
        )
        for replica in sorted(wanted, key=lambda replica: replica.path)
    ]


def versions_of(path: bytes, listings: Listings) -> list[Replica]:
    """Every version of a file that any peer holds."""
    held = (replica for replicas in listings.values() for replica in replicas)
    return [replica for replica in held if replica.path == path and replica.kind == "file"]


def is_same_file(one: Replica, other: Replica) -> bool:
    """Whether two paths are names of one file.

    A version is the instant, in nanoseconds, at which its owner settled one file.
    """
    both = _is_linkable(one) and _is_linkable(other)
    return both and _file_key(one) == _file_key(other)


def _is_linkable(replica: Replica) -> bool:
    return replica.kind == "file" and replica.size_bytes > 0


def _file_key(replica: Replica) -> tuple[str, int, int, bytes]:
    return replica.owner, replica.version, replica.size_bytes, replica.crcs


def _newest(listings: Listings) -> dict[bytes, Replica]:
    newest: dict[bytes, Replica] = {}
    for name in sorted(listings):
        for replica in listings[name]:
            held = newest.get(replica.path)
            if held is None or _age_key(replica) > _age_key(held):
                newest[replica.path] = replica
    return newest


def _age_key(replica: Replica) -> tuple[int, bool, int, str]:
    # A tombstone of the same instant is what a rename leaves behind: it wins.
    return replica.closed_at_ns, replica.kind == "gone", replica.version, replica.owner


def _deleted(replica: Replica, newest: Mapping[bytes, Replica]) -> bool:
    if replica.kind == "gone":
        return True
    above = (newest.get(path) for path in ancestors(replica.path))
    return any(
        directory is not None
        and directory.kind == "gone"
        and directory.closed_at_ns >= replica.closed_at_ns
        for directory in above
    )


def _by_path(listings: Listings) -> dict[bytes, list[tuple[str, Replica]]]:
    held: dict[bytes, list[tuple[str, Replica]]] = {}
    for name in sorted(listings):
        for replica in listings[name]:
            held.setdefault(replica.path, []).append((name, replica))
    return held


def _same(replica: Replica, held: Replica) -> bool:
    return (replica.kind, replica.owner, replica.version, replica.crcs, replica.target) == (
        held.kind, held.owner, held.version, held.crcs, held.target,
    )  # fmt: skip
