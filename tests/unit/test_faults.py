"""The rules by which the demo's storage fails."""

from __future__ import annotations

import errno

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachexfs.demo.faults import OPERATIONS, Fail, Fault, Hang, Proceed, Rules


def verdict(rules: Rules, op: str = "write", path: str = "a/b.pt", size: int = 0) -> object:
    return rules.verdict(op, (path,), size, now_s=0.0)


@given(op=st.sampled_from(sorted(OPERATIONS)))
def test_without_faults_everything_proceeds(op: str) -> None:
    assert verdict(Rules(), op) == Proceed()


def test_a_fault_without_operations_is_about_all() -> None:
    rules = Rules((Fault(errno="EIO"),))
    assert {verdict(rules, op) for op in OPERATIONS} == {Fail(errno.EIO)}
    assert rules.hits == len(OPERATIONS)


def test_a_fault_is_about_its_operations_only() -> None:
    rules = Rules((Fault(hang=True, ops=("fsync",)),))
    assert verdict(rules, "fsync") == Hang()
    assert verdict(rules, "write") == Proceed()


@pytest.mark.parametrize("glob", ["*.pt", "b.pt", "a/*", "a/b.pt"])
def test_a_name_is_the_last_part_or_the_whole_path(glob: str) -> None:
    rules = Rules((Fault(errno="EDQUOT", name=glob),))
    assert verdict(rules) == Fail(errno.EDQUOT)
    assert verdict(rules, path="c/d") == Proceed()


@given(count=st.integers(0, 20), calls=st.integers(0, 40))
def test_a_count_is_kept(count: int, calls: int) -> None:
    rules = Rules((Fault(errno="ENOSPC", count=count),))
    failed = [verdict(rules) for _ in range(calls)].count(Fail(errno.ENOSPC))
    assert failed == min(count, calls) == rules.hits


def test_the_first_fault_that_fits_decides_and_a_spent_one_gives_way() -> None:
    rules = Rules((Fault(errno="EIO", count=1), Fault(delay_s=2.0)))
    assert [verdict(rules), verdict(rules)] == [Fail(errno.EIO), Proceed(2.0)]


@given(sizes=st.lists(st.integers(1, 10**9), min_size=1, max_size=20))
def test_writes_share_the_bandwidth(sizes: list[int]) -> None:
    rules = Rules((Fault(bytes_per_s=1e6),))
    last = [verdict(rules, size=size) for size in sizes][-1]
    assert isinstance(last, Proceed)
    assert last.delay_s == pytest.approx(sum(sizes) / 1e6)


def test_an_idle_channel_owes_nothing() -> None:
    rules = Rules((Fault(bytes_per_s=100.0),))
    assert rules.verdict("write", (), 100, now_s=0.0) == Proceed(1.0)
    assert rules.verdict("write", (), 100, now_s=50.0) == Proceed(1.0)
    assert rules.verdict("read", (), 100, now_s=50.0) == Proceed(0.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"ops": ["wriet"]},
        {"errno": "EWHAT"},
        {"errno": "errorcode"},
        {"bytes_per_s": 0},
        {"kind": "x"},
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, Fault)
