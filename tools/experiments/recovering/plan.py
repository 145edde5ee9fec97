"""What one run of the experiment does, and what its ranks are told. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

from cachexfs.errors import UsageError

MICROBATCHES = 32
"""Into which every batch is cut, whatever the number of ranks, so that it divides this."""
Silent = Literal["save", "kill"]
METADATA = ".metadata"
"""What DCP's coordinator, rank 0, writes last (torch.distributed.checkpoint.filesystem)."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One run. Raises `UsageError`.

    `lost`: how many hosts die, the one that wrote `.metadata` first. `silent`: when the shared file
    system falls silent: as the ranks begin to `save`, or only after the `kill`, when it may have
    the files already. `width`: of the network's layers.
    """

    nodes: int = 4
    ranks: int = 32
    resumed_ranks: int = 8
    lost: int = 1
    replicas: int = 1
    pfs: Literal["dir", "gluster"] = "dir"
    silent: Silent = "save"
    steps_before: int = 8
    steps_after: int = 8
    width: int = 512

    def __post_init__(self) -> None:
        for broken, why in (
            (not 1 <= self.lost < self.nodes, f"--lost must be 1 to {self.nodes - 1}"),
            (self.ranks % self.nodes != 0, "every host has the same number of ranks"),
            (MICROBATCHES % self.ranks != 0, f"the ranks must divide {MICROBATCHES}"),
            (MICROBATCHES % self.resumed_ranks != 0, f"the ranks must divide {MICROBATCHES}"),
            (self.width % self.ranks != 0, "the ranks must divide the width of the network"),
        ):
            if broken:
                raise UsageError(why)

    @property
    def ranks_a_host(self) -> int:
        """The same on every host."""
        return self.ranks // self.nodes

    @property
    def last_step(self) -> int:
        """Up to which losses are compared."""
        return self.steps_before + self.steps_after

    @property
    def files(self) -> list[str]:
        """What a save of DCP consists of: a shard for each rank, and the metadata."""
        return [METADATA, *(shard_name(rank) for rank in range(self.ranks))]

    @property
    def all_from_peers(self) -> bool:
        """Whether each file has a living peer that holds it, once the copies are made again.

        Where one host is left there is nobody to hold what it wrote itself.
        """
        return self.nodes - self.lost > 1


def quick() -> Plan:
    """Small enough for a test: 8 ranks on 2 hosts."""
    return Plan(nodes=2, ranks=8, resumed_ranks=4, steps_before=2, steps_after=3, width=64)


def shard_name(rank: int) -> str:
    """The file that a rank writes, as DCP's FileSystemWriter names it."""
    return f"__{rank}_0.distcp"


class Errand(msgspec.Struct, frozen=True, kw_only=True):
    """What the ranks of one host are to do; goes to them as JSON.

    `first`, `count`: the ranks of this host, of `world`. `address`, `port`: where rank 0 listens.
    `link`: the network interface that the ranks talk over. `checkpoint`: the directory of DCP.
    `until`: the step before which it ends. Not `resume`: it begins at 0 and saves after `save_at`
    steps. What a rank has to say goes to `told`/rank-N as lines of JSON.
    """

    first: int
    count: int
    world: int
    address: str
    port: int
    link: str
    told: str
    width: int
    until: int
    checkpoint: str = ""
    save_at: int = -1
    resume: bool = False
