"""Members and the choice of partners among them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachexfs import config as c
from cachexfs.config import Member, Members
from cachexfs.errors import ConfigError
from cachexfs.peers import members
from cachexfs.peers.choice import (
    FULL_BYTES,
    STANDBYS,
    STEADY_FIRST_S,
    STEADY_MAX_S,
    Candidate,
    State,
    Steadiness,
    choose,
    connected,
    preference,
)
from cachexfs.peers.membership import Membership, resolve
from cachexfs.peers.rendezvous import first, score

ROOMY = 100 * FULL_BYTES
STATES: tuple[State, ...] = ("up", "shaky", "down")


def member(name: str, rack: str = "") -> Member:
    return Member(name=name, address=f"{name}:7420", rack=rack)


def cluster(count: int, racks: int) -> list[Member]:
    return [member(f"n{i}", f"r{i % racks}") for i in range(count)]


# --- where they come from -----------------------------------------------------------------------


def test_slurm_names_them() -> None:
    settings = Members(source="slurm", port=99, racks={"r1": "gpu[1-2]", "r2": "gpu3"})
    found = members.from_slurm({"SLURM_JOB_NODELIST": "gpu[2-4]"}, settings)
    assert [(m.name, m.address, m.rack) for m in found] == [
        ("gpu2", "gpu2:99", "r1"), ("gpu3", "gpu3:99", "r2"), ("gpu4", "gpu4:99", ""),
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="SLURM_JOB_NODELIST"):
        members.from_slurm({}, settings)


def test_a_file_names_them() -> None:
    text = "# who\na 10.0.0.1:7420 r1\n\nb [::1]:7421  # no rack\n"
    found = members.parse(text, Members(), "members")
    assert [(m.name, m.address, m.rack) for m in found] == [
        ("a", "10.0.0.1:7420", "r1"), ("b", "[::1]:7421", ""),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "a", "a b", "a h:1 r x", "a h:1\na h:2", "a h:99999"])
def test_a_file_that_says_nothing_sensible_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="members"):
        members.parse(text, Members(), "members")


def test_a_file_may_change_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "members"
    path.write_text("a h:1\nb h:2\n")
    text = f'[members]\nsource = "file"\nfile = "{path}"'
    config = resolve(c.parse(text, "test"))
    assert [m.name for m in config.peers] == ["a", "b"] and config.has_cluster
    membership, told = Membership(config), []
    membership.listen(lambda found: told.append([m.name for m in found]))
    for content, names, trouble in (
        ("a h:1\n", ["a"], False),
        ("nonsense\n", ["a"], True),
        ("a h:1\nc h:3\n", ["a", "c"], False),
    ):
        (tmp_path / "new").write_text(content)
        (tmp_path / "new").replace(path)
        membership._look()
        membership._tell()
        assert [m.name for m in membership.members] == names
        assert bool(membership.problems()) == trouble
    path.unlink()
    membership._look()
    assert membership.problems() and told == [["a"], ["a", "c"]]


def test_the_configuration_says_where_and_only_there() -> None:
    for wrong in (
        '[members]\nsource = "file"',
        '[members]\nfile = "x"',
        '[members]\nsource = "slurm"\n[[peers]]\nname = "a"\naddress = "a:1"',
    ):
        with pytest.raises(ConfigError, match="members"):
            c.parse(wrong, "test")
    config = c.parse('[members]\nsource = "slurm"\nracks = { r1 = "a[1-2]" }', "test")
    assert c.parse(c.to_toml(config), "again") == config


# --- the order ----------------------------------------------------------------------------------


@given(st.sets(st.text(min_size=1, max_size=8), min_size=2, max_size=30), st.binary(max_size=8))
def test_one_that_leaves_changes_the_place_of_no_other(names: set[str], key: bytes) -> None:
    ordered = first(key, names, len(names))
    assert [score(key, name) for name in ordered] == sorted(
        (score(key, name) for name in names), reverse=True
    )
    for gone in ordered:
        left = first(key, names - {gone}, len(names))
        assert left == [name for name in ordered if name != gone]


def test_other_racks_come_first_and_nobody_chooses_itself() -> None:
    order = preference("n0", "r0", cluster(40, 4))
    racks = [m.rack == "r0" for m in order]
    assert racks == sorted(racks) and len(order) == 39
    assert "n0" not in [m.name for m in order]


def test_a_connection_to_as_many_as_needed_and_standbys() -> None:
    order = [f"n{i}" for i in range(20)]
    assert connected(order, {}, (), 1) == order[: 1 + STANDBYS]
    assert connected(order, {"n0": "down"}, {"n9"}, 1) == [*order[: 2 + STANDBYS], "n9"]


# --- the choice ---------------------------------------------------------------------------------

candidates = st.lists(
    st.builds(
        Candidate,
        name=st.uuids().map(str),
        rack=st.sampled_from(["", "r0", "r1", "r2", "r3"]),
        state=st.sampled_from(STATES),
        free_bytes=st.sampled_from([0, ROOMY]),
        owners=st.integers(0, 9),
    ),
    max_size=8,
    unique_by=lambda candidate: candidate.name,
)


@given(candidates, st.integers(1, 3), st.sampled_from(["", "r0"]))
def test_as_many_as_there_are_and_none_that_is_down_before_one_that_is_not(
    found: list[Candidate], copies: int, rack: str
) -> None:
    chosen = choose(rack, found, copies)
    assert len(chosen) == len(set(chosen)) == min(copies, len(found))
    by_name = {candidate.name: candidate for candidate in found}
    usable = [candidate for candidate in found if candidate.state != "down"]
    healthy = [name for name in chosen if by_name[name].state != "down"]
    assert len(healthy) == min(copies, len(usable))


@given(candidates, st.integers(1, 3), st.sampled_from(["", "r0"]))
def test_racks_are_disjoint_as_far_as_there_are_racks(
    found: list[Candidate], copies: int, rack: str
) -> None:
    usable = [candidate for candidate in found if candidate.state != "down"]
    chosen = choose(rack, usable, copies)
    racks = [candidate.rack for candidate in usable if candidate.name in chosen]
    named = [name for name in racks if name and name != rack]
    unnamed = sum(not candidate.rack for candidate in usable)
    distinct = {candidate.rack for candidate in usable} - {"", rack}
    if len(distinct) + unnamed >= copies:
        assert len(set(named)) == len(named) and (not rack or rack not in racks)


@given(candidates, st.integers(1, 3), st.data())
def test_who_was_chosen_stays_while_nothing_better_is_there(
    found: list[Candidate], copies: int, data: st.DataObject
) -> None:
    chosen = choose("r0", found, copies)
    shuffled = data.draw(st.permutations(found))
    assert set(choose("r0", shuffled, copies, chosen)) == set(chosen) or any(
        candidate.state == "shaky" for candidate in found
    )
    assert choose("r0", found, copies, chosen) == choose("r0", found, copies, chosen)


def test_a_full_or_busy_member_is_taken_when_no_other_is_left() -> None:
    full, busy, idle = (
        Candidate("full", "", "up", 0),
        Candidate("busy", "", "up", ROOMY, owners=9),
        Candidate("idle", "", "up", ROOMY, owners=1),
    )
    assert choose("", [full, busy, idle], 1) == ("idle",)
    assert choose("", [full, busy], 1) == ("busy",)
    assert choose("", [full], 1) == ("full",)
    assert choose("", [full, busy, idle], 1, current=("busy",)) == ("busy",)


def test_a_dead_partner_is_replaced_and_does_not_displace_its_successor() -> None:
    a, b = Candidate("a", "", "up", ROOMY), Candidate("b", "", "up", ROOMY)
    assert choose("", [a, b], 1) == ("a",)
    assert choose("", [a._replace(state="down"), b], 1, ("a",)) == ("b",)
    assert choose("", [a, b], 1, ("b",)) == ("b",)


# --- hysteresis ---------------------------------------------------------------------------------


def test_who_comes_and_goes_is_trusted_ever_later() -> None:
    health, now, waits = Steadiness(), 0.0, []
    for _ in range(10):
        assert health.see("down", now) == "down"
        back = now
        while health.see("up", now) != "up":
            assert health.state == "shaky"
            now += 0.5
            if now - back > 3:
                break
        waits.append(health.steady_s)
    assert waits[0] == STEADY_FIRST_S and waits[-1] == STEADY_MAX_S
    now += 1.0
    health.see("up", now)
    assert health.see("up", now + STEADY_MAX_S) == "up" and health.steady_s == STEADY_FIRST_S


@given(st.lists(st.tuples(st.sampled_from(STATES), st.floats(0.01, 20.0)), max_size=60))
def test_down_is_believed_at_once_and_up_after_a_while(seen: list[tuple[State, float]]) -> None:
    health, now, down_at = Steadiness(), 0.0, None
    for state, pause in seen:
        now += pause
        judged = health.see(state, now)
        if state == "down":
            assert judged == "down"
            down_at = now
        elif judged == "up" and down_at is not None:
            assert now - down_at >= STEADY_FIRST_S


def test_balance_of_rendezvous() -> None:
    names = [f"n{i}" for i in range(50)]
    taken = Counter(name for key in range(5000) for name in first(b"%d" % key, names, 2))
    assert len(taken) == 50 and max(taken.values()) < 1.5 * 200
