"""What the phases of a run share: the cluster, who is left of it, and what was written."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cachexfs.ram.node import HIDDEN
from tools.experiments.recovering.accounts import Account, Described, differences
from tools.experiments.recovering.plan import METADATA, Errand, Plan, shard_name
from tools.experiments.recovering.ranks import Ranks
from tools.hosts.cluster import Cluster
from tools.hosts.errors import ClusterError
from tools.hosts.host import Host
from tools.hosts.system import module

RUN = "run"
"""The job's directory below the mount."""
PORT = 29_500
STARTS_S = 300.0
"""PyTorch is imported once a host, and 32 ranks meet: half a minute on two cores."""
_SHARDS = "tools.experiments.recovering.shards"
_LOOK_EVERY_S = 0.1


@dataclass
class Scene:
    """Of one run. `written`: what the ranks saw of each file just after they had saved it."""

    plan: Plan
    cluster: Cluster
    account: Account
    report: Callable[[str], None]
    victims: list[Host] = field(default_factory=list)
    survivors: list[Host] = field(default_factory=list)
    written: Described = field(default_factory=dict)

    @property
    def work(self) -> Path:
        """A directory on this machine's disk, seen from all hosts."""
        return self.cluster.spec.home / "experiment"

    @property
    def checkpoint(self) -> str:
        """The directory of DCP, below a mount."""
        return f"{RUN}/step-{self.plan.steps_before:06d}"

    def errand(self, ranks: Ranks, on: Host | None = None, **more: Any) -> Errand:
        """What ranks on a host are to do, or on none."""
        where = str(on.mountpoint / self.checkpoint) if on else ""
        known = {"first": 0, "count": 1, "world": 1, "port": PORT, "link": "peers"}
        told = {"told": str(ranks.told), "width": self.plan.width, "checkpoint": where}
        return Errand(**{**known, **told, **more})

    def written_on(self, host: Host) -> list[dict[str, Any]]:
        """What a host's mount says of the files that its own ranks wrote."""
        count = self.plan.ranks_a_host
        first = (host.number - 1) * count
        mine = {shard_name(rank) for rank in range(first, first + count)}
        mine |= {METADATA} if host.number == 1 else set()
        return [file for file in host.ls(self.checkpoint) if name_of(file) in mine]

    def fall_silent(self) -> None:
        """The shared file system answers nobody from now on."""
        self.report("the shared file system falls silent on all hosts")
        with self.account.phase("block the source"):
            self.cluster.block_pfs()

    def compare(self, where: str, on: Host, directory: Path, wanted: Described) -> None:
        """Hold the files of a directory, as a host sees it, against what was written."""
        done = on.exec(module(_SHARDS, directory), check=False)
        if done.returncode != 0:
            said = done.stderr.strip().splitlines()[-1]
            self.account.check(f"all files {where} can be read", False, said)
            return
        found = json.loads(done.stdout)
        wrong = differences(wanted, found)
        more = sorted(found.keys() - self.written.keys())
        if foreign := [name for name in more if not name.encode().startswith(HIDDEN)]:
            wrong += f"; not written by anybody: {', '.join(foreign)}"
        what = f"{len(wanted)} files {where} as written: bytes, modes, owners, times"
        self.account.check(what, not wrong, wrong)

    def compare_losses(
        self, ranks: Ranks, expected: dict[int, float], steps: Sequence[int]
    ) -> None:
        """Hold the losses of these steps against those of the uninterrupted run."""
        found = {step: loss for step, loss in losses(ranks).items() if step in steps}
        self.account.losses |= {step: (expected[step], found[step]) for step in found}
        largest = max((abs(expected[step] - found[step]) for step in found), default=0.0)
        self.account.check(
            f"losses of steps {steps[0]} to {steps[-1]} are the uninterrupted run's, bit by bit",
            sorted(found) == list(steps) and largest == 0.0,
            f"{len(found)} of {len(steps)}, largest difference {largest:g}",
        )


def losses(ranks: Ranks) -> dict[int, float]:
    """Step -> loss, as rank 0 told it, exact."""
    return {each["step"]: float.fromhex(each["loss"]) for each in ranks.heard("loss")}


def name_of(file: dict[str, Any]) -> str:
    """The last part of the path of what `ls` tells of."""
    return str(file["path"]).rpartition("/")[2]


def until(condition: Callable[[], bool], what: str, limit_s: float) -> None:
    """Wait. Raises `ClusterError`."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise ClusterError(f"{what}: not within {limit_s:.0f} s")
        time.sleep(_LOOK_EVERY_S)
