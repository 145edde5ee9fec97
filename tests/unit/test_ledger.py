"""The order of publishing, under any actions and any order in which they get done."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cachexfs.durability.actions import Action, Mkdir, Publish, Rename, Rmdir, Slot, Unlink
from cachexfs.durability.ledger import Entry, Ledger

SLOTS = st.builds(Slot, st.sampled_from([1, 2]), st.sampled_from([b"x", b"y", b"z"]))
INOS = st.integers(10, 13)
ACTIONS: st.SearchStrategy[Action] = st.one_of(
    st.builds(lambda i, s: Publish(i, 1, (s,)), INOS, SLOTS),
    st.builds(Unlink, INOS, SLOTS),
    st.builds(Rename, INOS, SLOTS, SLOTS),
    st.builds(Rmdir, st.just(2), st.just(Slot(1, b"two"))),
    st.builds(Mkdir, st.just(2), st.just(Slot(1, b"two"))),
)
JOBS = st.sampled_from(["", "slurm:1", "slurm:2"])


def _must_wait(earlier: Entry, later: Entry) -> bool:
    """The order that is promised, said another way than the ledger says it."""
    mine, yours = earlier.action, later.action
    return (
        earlier.job == later.job
        or bool(set(mine.touches()) & set(yours.touches()))
        or bool(set(mine.touches()) & set(yours.stands_in()))
        or bool(set(mine.stands_in()) & set(yours.touches()))
    )


@given(st.lists(st.tuples(JOBS, ACTIONS), max_size=25), st.randoms(use_true_random=False))
def test_nothing_is_ready_before_what_it_depends_on(
    wanted: list[tuple[str, Action]], chance: object
) -> None:
    ledger, entries = Ledger(), list[Entry]()
    for job, action in wanted:
        entries.append(ledger.append(job, action))
        ledger.validate()
    left = {entry.seq: entry for entry in entries}
    while left:
        ready = [seq for seq in left if ledger.is_ready(seq)]
        assert ready, "a circle"
        for seq in ready:
            assert not any(_must_wait(left[e], left[seq]) for e in left if e < seq)
        seq = chance.choice(ready)  # type: ignore[attr-defined]
        freed = ledger.done(seq)
        del left[seq]
        assert all(ledger.is_ready(entry.seq) for entry in freed)
        ledger.validate()
    assert ledger.is_idle("", *range(20))
    assert not ledger.is_touched(2)


def test_jobs_do_not_hold_each_other_up() -> None:
    ledger = Ledger()
    first = ledger.append("a", Publish(10, 1, (Slot(1, b"x"),)))
    other = ledger.append("b", Publish(11, 1, (Slot(1, b"y"),)))
    behind = ledger.append("a", Publish(12, 1, (Slot(1, b"z"),)))
    assert ledger.is_ready(other.seq)
    assert ledger.blockers(behind.seq) == [first]
    assert ledger.done(first.seq) == [behind]


def test_a_removal_of_a_directory_waits_for_all_in_it() -> None:
    ledger = Ledger()
    one = ledger.append("a", Unlink(10, Slot(2, b"x")))
    two = ledger.append("b", Unlink(11, Slot(2, b"y")))
    removal = ledger.append("c", Rmdir(2, Slot(1, b"two")))
    assert ledger.blockers(removal.seq) == [one, two]


def test_a_ledger_that_is_read_back_goes_on_counting() -> None:
    ledger = Ledger()
    ledger.append("a", Unlink(10, Slot(2, b"x")), seq=7)
    assert ledger.append("a", Unlink(10, Slot(2, b"x"))).seq == 8
