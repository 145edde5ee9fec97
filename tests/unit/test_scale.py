"""The simulation of large clusters: what its figures promise, in a small one."""

from __future__ import annotations

from collections import Counter

from tools.experiments.scale.simulation import Spread, cluster, homes, moves, partners

MEMBERS = cluster(96)
RACK = frozenset(member.name for member in MEMBERS[:16])
LEFT = [member for member in MEMBERS if member.name not in RACK]


def test_a_rack_that_dies_moves_what_it_had_and_nothing_else() -> None:
    before, after = homes(MEMBERS, 500), homes(LEFT, 500)
    moved = moves(before, after, RACK)
    assert moved.without_need == 0
    assert moved.moved == sum(bool(RACK & set(each)) for each in before)
    assert all(len(set(b) - RACK - set(a)) == 0 for b, a in zip(before, after, strict=True))


def test_partners_are_spread_over_racks_and_members() -> None:
    racks = {member.name: member.rack for member in MEMBERS}
    chosen = partners(MEMBERS, MEMBERS, 2, by_load=True)
    for owner, found in chosen.items():
        assert len({racks[owner], *(racks[name] for name in found)}) == 3
    load = Counter(name for found in chosen.values() for name in found)
    plain = Counter(
        name for found in partners(MEMBERS, MEMBERS, 2, by_load=False).values() for name in found
    )
    assert max(load.values()) <= max(plain.values())


def test_homes_are_spread() -> None:
    spread = Spread.of(Counter(name for each in homes(MEMBERS, 3000) for name in each), 96)
    assert spread.largest < 1.6 and spread.p99 < 1.5
