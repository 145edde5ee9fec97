"""Which files are one checkpoint, whether all of it is there, and whether all is of one save. Pure.

Two kinds of sharded checkpoints say themselves what belongs to them:

- PyTorch's distributed checkpoints: `.metadata` names the shards, and is written after all of them.
- Files named `...-00001-of-00003...`, as safetensors and TensorFlow have them.

Of other files nobody says what belongs together; they come back each for itself.

The metadata is a pickle. It is never loaded: its strings are read off its opcodes, which runs
nothing (pickletools).
"""

from __future__ import annotations

import pickletools
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from cachexfs.peers.messages import Replica

INDEX = b".metadata"
SHARD_SUFFIX = b".distcp"
"""As `torch.distributed.checkpoint.filesystem` names them."""
INDEX_AT_MOST_BYTES = 256 << 20
"""A larger index is not looked into; one of ten thousand shards has a few megabytes."""
CLOCKS_S = 5.0
"""By how much the clocks of two nodes may differ; saves over one path are further apart."""

_RANK_INDEX = re.compile(rb"__\d+\.metadata")  # without coordination every rank has its own
_NUMBERED = re.compile(rb"(.+)-(\d+)-of-(\d+)(\..+)?")


class Checkpoint(NamedTuple):
    """A directory with a sharded checkpoint. `files`: name -> newest version that is held."""

    path: bytes
    files: Mapping[bytes, Replica]

    @property
    def metadata(self) -> Replica | None:
        """The file that names the others, if it is held."""
        return self.files.get(INDEX)

    @property
    def closed_at_ns(self) -> int:
        """When it was whole, or as far as it got."""
        newest = max(replica.closed_at_ns for replica in self.files.values())
        return self.metadata.closed_at_ns if self.metadata else newest


class Generation(NamedTuple):
    """What is to be said of a checkpoint. `missing`: names that belong to it and are not there."""

    path: bytes
    job: str
    closed_at_ns: int
    files: int
    missing: tuple[bytes, ...]

    @property
    def is_complete(self) -> bool:
        """Whether it can be loaded."""
        return not self.missing


def checkpoints(replicas: Iterable[Replica]) -> list[Checkpoint]:
    """The sharded checkpoints among files that are held, by path."""
    found: dict[bytes, dict[bytes, Replica]] = {}
    for replica in replicas:
        directory, _, name = replica.path.rpartition(b"/")
        if replica.kind == "file" and _is_part(name):
            found.setdefault(directory, {})[name] = replica
    return [Checkpoint(path, files) for path, files in sorted(found.items())]


def _is_part(name: bytes) -> bool:
    is_dcp = name == INDEX or name.endswith(SHARD_SUFFIX) or _RANK_INDEX.fullmatch(name)
    return bool(is_dcp or _NUMBERED.fullmatch(name))


def shards_named_in(index: bytes) -> set[bytes]:
    """The names of the shards that DCP's metadata names; none where it is not such a file."""
    try:
        strings = [arg for _, arg, _ in pickletools.genops(index) if isinstance(arg, str)]
    except ValueError:
        return set()
    names = (string.encode(errors="surrogateescape") for string in strings)
    return {name for name in names if name.endswith(SHARD_SUFFIX) and b"/" not in name}


def needed(checkpoint: Checkpoint, named: set[bytes]) -> set[bytes]:
    """The names of all files that belong to a checkpoint; `named`: those that its index names."""
    wanted = set(named)
    if any(name.endswith(SHARD_SUFFIX) for name in checkpoint.files):
        indexes = {name for name in checkpoint.files if _RANK_INDEX.fullmatch(name)}
        wanted |= indexes or {INDEX}
    return wanted.union(*(_numbered_with(name, checkpoint.files) for name in checkpoint.files))


def _numbered_with(name: bytes, there: Mapping[bytes, Replica]) -> set[bytes]:
    """All names of the set that `name` is one of: from 1, or from 0 where 0 is there."""
    if not (match := _NUMBERED.fullmatch(name)):
        return set()
    stem, number, total, suffix = match[1], match[2], match[3], match[4] or b""

    def named(index: int) -> bytes:
        return b"%b-%0*d-of-%b%b" % (stem, len(number), index, total, suffix)

    first = 0 if named(0) in there else 1
    return {named(index) for index in range(first, first + min(int(total), 100_000))}


def of_other_saves(
    checkpoint: Checkpoint, named: set[bytes], versions: Sequence[Replica]
) -> dict[bytes, str]:
    """Shards that the index names and that are of another save than it: name -> why.

    They are what a peer was left with that missed the newest version; with them the checkpoint
    would be a mix. `versions`: all versions of the index that any peer holds.
    """
    index = checkpoint.metadata
    if index is None:
        return {}
    earlier = [v.closed_at_ns for v in versions if v.closed_at_ns < index.closed_at_ns]
    found = {}
    for name in sorted(named & checkpoint.files.keys()):
        if why := _other_save(checkpoint.files[name], index, max(earlier, default=None)):
            found[name] = why
    return found


def _other_save(shard: Replica, index: Replica, before_ns: int | None) -> str | None:
    if _is_managed(shard.job) and _is_managed(index.job) and shard.job != index.job:
        return f"only what {shard.job} wrote is held, and {INDEX.decode()} is of {index.job}"
    if before_ns is not None and shard.closed_at_ns <= before_ns:
        return "only a version of an earlier save is held"
    if shard.closed_at_ns > index.closed_at_ns + CLOCKS_S * 1e9:
        return f"it is of a later save, of which {INDEX.decode()} is not held"
    return None


def _is_managed(job: str) -> bool:
    # The cgroup that stands in where no manager of jobs is known may differ from node to node.
    return job.startswith(("slurm:", "lazer:"))


def members(checkpoint: Checkpoint, named: set[bytes]) -> list[bytes]:
    """The paths of all that belongs to a checkpoint."""
    prefix = checkpoint.path + b"/" if checkpoint.path else b""
    return [prefix + name for name in sorted(needed(checkpoint, named))]


def judge(checkpoint: Checkpoint, named: set[bytes], there: Container[bytes]) -> Generation:
    """Whether all of a checkpoint is there; `there`: paths."""
    paths = members(checkpoint, named)
    missing = tuple(path.rpartition(b"/")[2] for path in paths if path not in there)
    job = (checkpoint.metadata or next(iter(checkpoint.files.values()))).job
    return Generation(checkpoint.path, job, checkpoint.closed_at_ns, len(paths), missing)


def offered(generation: Generation, others: Iterable[Generation]) -> Generation | None:
    """The newest complete one beside an incomplete one: in the same directory, of the same job."""
    parent = generation.path.rpartition(b"/")[0]
    beside = [
        other
        for other in others
        if other.is_complete and other.path.rpartition(b"/")[0] == parent
        and (other.job == generation.job or not _is_managed(generation.job))
    ]  # fmt: skip
    return max(beside, key=lambda other: other.closed_at_ns, default=None)


def broken(generations: Sequence[Generation]) -> list[Generation]:
    """The incomplete ones that a program would take up: those with no newer complete one beside."""
    incomplete = [each for each in generations if not each.is_complete]
    return [
        each
        for each in incomplete
        if (other := offered(each, generations)) is None or other.closed_at_ns < each.closed_at_ns
    ]


def sentence(generation: Generation, generations: Iterable[Generation]) -> str:
    """What a person should know of an incomplete one, and what to take instead."""
    few = b", ".join(generation.missing[:3]).decode(errors="replace")
    more = ", ..." if len(generation.missing) > 3 else ""
    other = offered(generation, generations)
    instead = (
        f"the newest complete one is {_shown(other.path)} (--path {_shown(other.path)})"
        if other else "no complete one is held beside it"
    )  # fmt: skip
    return (
        f"{_shown(generation.path)} is incomplete: {len(generation.missing)} of "
        f"{generation.files} files are not to be had ({few}{more}); {instead}"
    )


def _shown(path: bytes) -> str:
    return path.decode(errors="replace") or "."
