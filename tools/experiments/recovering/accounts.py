"""What came of a run: phases with their seconds, what was to hold and whether it did."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tools.experiments.recovering.plan import Plan
from tools.experiments.recovering.shards import KEPT

Described = Mapping[str, Mapping[str, Any]]
"""File name -> what `shards.describe` says of it."""


class Check(msgspec.Struct, frozen=True):
    """Something that must hold. `detail`: figures, or what is wrong."""

    what: str
    held: bool
    detail: str = ""


@dataclass
class Account:
    """Of one run. `losses`: step -> (uninterrupted, as it was here), both exact."""

    plan: Plan
    seconds: dict[str, float] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)
    losses: dict[int, tuple[float, float]] = field(default_factory=dict)
    files: int = 0
    size_bytes: int = 0
    lost: list[str] = field(default_factory=list)
    recovered_on: str = ""

    @property
    def held(self) -> bool:
        """Whether everything did."""
        return bool(self.checks) and all(check.held for check in self.checks)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """The seconds that a block takes; those of phases with one name are added up."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - begin

    def check(self, what: str, held: bool, detail: str = "") -> None:
        """Note whether something holds."""
        self.checks.append(Check(what, held, detail))

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "held": self.held,
            "plan": msgspec.to_builtins(self.plan),
            "lost": self.lost,
            "recovered_on": self.recovered_on,
            "files": self.files,
            "size_bytes": self.size_bytes,
            "seconds": {name: round(seconds, 3) for name, seconds in self.seconds.items()},
            "losses": [[step, *both] for step, both in sorted(self.losses.items())],
            "checks": msgspec.to_builtins(self.checks),
        }


def differences(written: Described, found: Described) -> str:
    """What is not as it was written, in a sentence; "" when all is: bytes and attributes."""
    missing = sorted(written.keys() - found.keys())
    changed = [
        f"{name}: {key}"
        for name in sorted(written.keys() & found.keys())
        for key in ("sha256", "size_bytes", *KEPT)
        if written[name][key] != found[name][key]
    ]
    said = [f"{len(missing)} missing: {', '.join(missing[:3])}"] if missing else []
    return "; ".join(said + changed[:5])


def as_text(accounts: Sequence[Account]) -> str:
    """For people: a column for each run."""
    plans = [account.plan for account in accounts]
    rows = [
        ("", [f"{plan.lost} of {plan.nodes} lost" for plan in plans]),
        ("ranks before, after", [f"{plan.ranks}, {plan.resumed_ranks}" for plan in plans]),
        ("copies at peers", [str(plan.replicas) for plan in plans]),
        ("shared file system", [f"{plan.pfs}, silent from {plan.silent}" for plan in plans]),
        ("lost", [", ".join(account.lost) for account in accounts]),
        ("recovered on", [account.recovered_on for account in accounts]),
        ("files", [str(account.files) for account in accounts]),
        ("bytes", [f"{account.size_bytes:,}" for account in accounts]),
    ]
    names = dict.fromkeys(name for account in accounts for name in account.seconds)
    rows += [(f"s: {name}", [_seconds(account, name) for account in accounts]) for name in names]
    rows += [
        (f"loss of step {step}", [_loss(account, step) for account in accounts])
        for step in sorted({step for account in accounts for step in account.losses})
    ]
    return "\n".join([*_aligned(rows), "", *map(_verdict, accounts)])


def _seconds(account: Account, name: str) -> str:
    return f"{account.seconds[name]:.2f}" if name in account.seconds else "-"


def _loss(account: Account, step: int) -> str:
    if step not in account.losses:
        return "-"
    expected, got = account.losses[step]
    return f"{got:.9f} " + ("=" if expected == got else f"!= {expected:.9f}")


def _aligned(rows: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    table = [(name, *columns) for name, columns in rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]


def _verdict(account: Account) -> str:
    lines = [
        f"{'held' if check.held else 'FAILED'}  {check.what}"
        + (f" ({check.detail})" if check.detail else "")
        for check in account.checks
    ]
    plan = account.plan
    return "\n".join([f"{plan.lost} of {plan.nodes} lost:", *(f"  {line}" for line in lines)])
