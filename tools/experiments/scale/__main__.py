"""`python -m tools.experiments.scale [--sizes 1000,10000] [--out docs/scale.md]`: the figures."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path

from cachexfs.config import Member
from cachexfs.peers.choice import STANDBYS
from cachexfs.peers.homes import HOMES, NEGATIVE_S, WAIT_S
from tools.experiments.scale.simulation import (
    RACK_SIZE,
    Spread,
    cluster,
    homes,
    moves,
    partners,
    sample,
)

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
HASHES = 2_000_000
"""How many scores are computed for a table row at most: a few seconds."""
COPIES = 2


def main() -> None:
    """Compute, print, and write between the markers of a page if one is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="64,1000,10000")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.sizes.split(",")]
    text = "\n".join([*_messages(), "", *_rows(sizes)])
    print(text)
    if arguments.out is not None:
        _write(arguments.out, text)


def _messages() -> list[str]:
    return [
        "| operation | messages, whatever the number of members |",
        "|---|---|",
        f"| a close, a rename (each name), a removal | {HOMES}, in parallel |",
        f"| the replica is acknowledged, the commit | {HOMES} each |",
        f"| a lookup of what is nowhere | {HOMES}, in parallel, once in {NEGATIVE_S} s |",
        f"| a lookup in a directory where nothing is on its way | {HOMES} once in {NEGATIVE_S} s |",
        f"| a listing | {HOMES} for each mebibyte of entries |",
        f"| the longest wait for a home that is dead | {WAIT_S} s, once |",
        f"| connections of a node to keep its replicas | {COPIES} + {STANDBYS} |",
    ]


def _rows(sizes: list[int]) -> list[str]:
    columns = [_figures(size) for size in sizes]
    head = ["| |", *(f" {size:,} members |" for size in sizes)]
    lines = ["".join(head), "|---|" + "---|" * len(sizes)]
    for key in columns[0]:
        lines.append(f"| {key} | " + " | ".join(column[key] for column in columns) + " |")
    return lines


def _figures(size: int) -> dict[str, str]:
    members = cluster(size)
    count = max(200, min(20_000, HASHES // size))
    owners = sample(members, HASHES // size)
    begun = time.perf_counter()
    before = homes(members, count)
    per_directory_s = (time.perf_counter() - begun) / count
    rack = frozenset(member.name for member in members[:RACK_SIZE])
    left = [member for member in members if member.name not in rack]
    spread = Spread.of(Counter(name for each in before for name in each), size)
    home_moves = moves(before, homes(left, count), rack)
    return {
        "directories looked at": f"{count:,}",
        "homes of a directory found in (once, then remembered)": f"{per_directory_s * 1e3:.1f} ms",
        "directories for which a member is home, largest / mean":
            f"{spread.largest:.2f}" if spread.mean >= 4 else "(too few looked at)",
        **_partners(members, owners, left, rack),
        f"a rack of {RACK_SIZE} dies: directories with another home":
            f"{home_moves.moved / count:.2%} (fair: {HOMES * RACK_SIZE / size:.2%})",
        "of these, without having lost one": str(home_moves.without_need),
    }  # fmt: skip


def _partners(
    members: list[Member], owners: list[Member], left: list[Member], rack: frozenset[str]
) -> dict[str, str]:
    chosen = partners(members, owners, COPIES, by_load=True)
    plain = partners(members, owners, COPIES, by_load=False)
    racks = {member.name: member.rack for member in members}
    shared = sum(
        len({racks[owner], *(racks[p] for p in found)}) < 1 + COPIES
        for owner, found in chosen.items()
    )
    staying = [owner for owner in owners if owner.name not in rack]
    after = partners(left, staying, COPIES, by_load=False)
    moved = moves(
        [plain[owner.name] for owner in staying], [after[owner.name] for owner in staying], rack
    )
    return {
        "owners looked at": f"{len(owners):,}",
        f"owners that a member serves (replicas = {COPIES}), largest": f"{_largest(chosen)}",
        "the same without looking at the load": f"{_largest(plain)}",
        "owners with two copies, or itself and one, in one rack": str(shared),
        f"a rack of {RACK_SIZE} dies: owners with another partner": f"{moved.moved / moved.of:.2%}",
        "of these, without having lost one ": str(moved.without_need),
    }


def _largest(chosen: dict[str, tuple[str, ...]]) -> int:
    return max(Counter(name for found in chosen.values() for name in found).values())


def _write(page: Path, text: str) -> None:
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


if __name__ == "__main__":
    main()
