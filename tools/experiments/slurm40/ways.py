"""The three ways, as settings of Slurm."""

from __future__ import annotations

from dataclasses import dataclass, field

EXEMPT_S = 3
"""PreemptExemptTime: the shortest set-up there is, so that it protects, but not every set-up."""

OWN = {"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"}


@dataclass(frozen=True, slots=True)
class Way:
    """`has_lazer`: lazerd steers; otherwise Slurm does it itself."""

    name: str
    has_lazer: bool
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def partitions(self) -> tuple[str, ...]:
        """Lines of slurm.conf."""
        high, low = ("1", "1") if self.has_lazer else ("10", "1")
        return (f"PartitionName=low Default=YES PriorityTier={low}",
                f"PartitionName=high PriorityTier={high}")  # fmt: skip


WAYS = {
    way.name: way
    for way in (
        Way("lazer", True),
        Way("requeue", False, OWN),
        Way("exempt", False, {**OWN, "PreemptExemptTime": f"00:00:{EXEMPT_S:02}"}),
    )
}
