"""Single values that Slurm prints."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazerd.backend.slurm.dependencies import plain, waits_for
from lazerd.backend.slurm.errors import (
    AlreadySo,
    BrokenAnswer,
    NoSuchJob,
    NotPermitted,
    Refused,
    Unreachable,
)
from lazerd.backend.slurm.failures import failure_of
from lazerd.backend.slurm.gres import gpus_of, gpus_of_tres, indexes_of
from lazerd.backend.slurm.hosts import hosts_of, joined
from lazerd.backend.slurm.marks import Mark, Marked, mark_of
from lazerd.backend.slurm.orders import has_steps
from lazerd.backend.slurm.tasks import tasks_of, throttle_of
from lazerd.backend.slurm.values import (
    count_of,
    duration_s,
    instant_s,
    interval_s,
    is_yes,
    number_of,
    settings_of,
    text_of,
    words_of,
)
from lazerd.backend.slurm.wishes import Wishes, wishes_of


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (5, 5.0),
        ({"set": True, "infinite": False, "number": 5}, 5.0),
        ({"set": False, "infinite": False, "number": 0}, None),
        ({"set": False, "infinite": True, "number": 0}, math.inf),
        (None, None),
        ("UNLIMITED", math.inf),
        ("(null)", None),
        ("12", 12.0),
        (0xFFFFFFFE, None),
        (0xFFFFFFFF, math.inf),
    ],
)
def test_numbers(value: Any, number: float | None) -> None:
    assert number_of(value) == number


@pytest.mark.parametrize("value", [[], "many", True, {"set": True, "number": []}])
def test_what_is_no_number(value: Any) -> None:
    with pytest.raises(BrokenAnswer, match="a number was expected"):
        number_of(value)


def test_counts_flags_words_and_texts() -> None:
    assert [count_of(value) for value in ("2-4", None, "UNLIMITED", 3)] == [2, 0, 0, 3]
    assert all(is_yes(value) for value in (True, "1", "YES", {"set": True, "number": 1}))
    assert not any(is_yes(value) for value in (False, "0", "NO", None, {"set": False}))
    assert words_of("IDLE+DRAIN") == words_of(["idle", "DRAIN"]) == ("IDLE", "DRAIN")
    assert [text_of(value) for value in (None, "(null)", "N/A", "x")] == ["", "", "", "x"]
    with pytest.raises(BrokenAnswer):
        text_of(3)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800.0),
        ("02:30", 150.0),
        ("01:00:05", 3605.0),
        ("1-00", 86400.0),
        ("1-02:03", 93780.0),
        ("2-00:00:01", 172801.0),
        ("UNLIMITED", math.inf),
        ("N/A", None),
    ],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert duration_s(text) == seconds


@given(st.integers(0, 10**6))
def test_every_duration_that_slurm_prints(seconds: int) -> None:
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    text = f"{hour:02}:{minute:02}:{second:02}"
    assert duration_s(f"{days}-{text}" if days else text) == seconds


def test_intervals_and_instants() -> None:
    assert [interval_s(t) for t in ("30 sec", "5 min", "00:05:00", "45")] == [30, 300, 300, 45]
    assert instant_s("Unknown") is None
    assert instant_s("0") is None
    assert instant_s("1700000000") == 1.7e9
    with pytest.raises(BrokenAnswer):
        instant_s("yesterday")
    with pytest.raises(BrokenAnswer):
        duration_s("soon")


def test_settings() -> None:
    assert settings_of("a=1,b, c=x[1,2]") == {"a": "1", "b": "", "c": "x[1,2]"}
    assert settings_of("(null)") == {}


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", ()),
        ("(null)", ()),
        ("n1", ("n1",)),
        ("n[1-3,07],m", ("n1", "n2", "n3", "n07", "m")),
        ("n[08-11]", ("n08", "n09", "n10", "n11")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
        ("a-b.c[1]-x", ("a-b.c1-x",)),
    ],
)
def test_hosts(text: str, hosts: tuple[str, ...]) -> None:
    assert hosts_of(text) == hosts
    assert hosts_of(joined(hosts)) == hosts


@pytest.mark.parametrize("text", ["n[1-", "n]1[", "n[a-b]", "n[1-999999999]"])
def test_what_is_no_list_of_hosts(text: str) -> None:
    with pytest.raises(BrokenAnswer):
        hosts_of(text)


@pytest.mark.parametrize(
    ("text", "gpus", "indexes"),
    [
        ("(null)", 0, ()),
        ("gpu:4", 4, ()),
        ("gpu", 1, ()),
        ("gres:gpu:2", 2, ()),
        ("gres/gpu:a100:2", 2, ()),
        ("gpu:a100:8(S:0-1),nic:2", 8, ()),
        ("gpu:2(IDX:0,3)", 2, (0, 3)),
        ("gpu:h200:3(IDX:0-1,5),mps:0", 3, (0, 1, 5)),
        ("gpu:0(IDX:N/A)", 0, ()),
        ("gpu:nvidia_a100-sxm4-80gb:1,gpu:v100:1", 2, ()),
        ("gpumem:4,license:x", 0, ()),
        ("gres/gpu=8", 8, ()),
    ],
)
def test_gres(text: str, gpus: int, indexes: tuple[int, ...]) -> None:
    assert (gpus_of(text), indexes_of(text)) == (gpus, indexes)


def test_tres() -> None:
    assert gpus_of_tres("cpu=2,mem=4G,node=2,billing=2") is None
    assert gpus_of_tres("cpu=2,gres/gpu=8,gres/gpu:a100=8") == 8
    assert gpus_of_tres("cpu=2,gres/gpu:a100=4,gres/gpu:v100=1") == 5
    with pytest.raises(BrokenAnswer):
        gpus_of("gpu:a:b:c")


def test_array_tasks() -> None:
    assert tasks_of("0-2,4-5,9%2") == (0, 1, 2, 4, 5, 9)
    assert tasks_of("[3-4]") == (3, 4)
    assert tasks_of("1-7:3") == (1, 4, 7)
    assert (throttle_of("0-3%2"), throttle_of("0-3")) == (2, 0)
    with pytest.raises(BrokenAnswer, match="no list of array tasks"):
        tasks_of("0,2,4,...")


@given(st.sampled_from([*Marked][1:]), st.integers(0, 2**32), st.text("ab :"), st.booleans())
def test_marks_are_read_as_they_are_written(kind: Marked, n: int, rest: str, own: bool) -> None:
    number = n if kind in (Marked.START, Marked.LEAVE) else 0
    mark = Mark(kind, number, rest.strip(), own)
    assert mark_of(str(mark)) == mark


def test_somebody_elses_comment_is_no_mark() -> None:
    assert mark_of("billing: 12") == Mark(Marked.NOT, rest="billing: 12")
    assert mark_of("lazer:odd x").kind is Marked.NOT


def test_wishes() -> None:
    wishes, broken = wishes_of("lazer estimate=2h grace=1.5m signal=USR1 class=big what=1 setup=x")
    assert wishes == Wishes(estimate=7200, grace=90, signal=10, job_class="big")
    assert broken == ["'what=1' in the comment is not understood",
                      "'setup=x' in the comment is not understood"]  # fmt: skip
    assert wishes_of("my own words: estimate=3") == (Wishes(), [])
    assert wishes_of("") == (Wishes(), [])


@pytest.mark.parametrize(
    ("stderr", "error"),
    [
        ("slurm_load_jobs error: Invalid job id specified", NoSuchJob),
        ("Access/permission denied for job 6", NotPermitted),
        (
            "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
            Unreachable,
        ),
        ("x: error: slurm_receive_msg: Socket timed out on send/recv operation", Unreachable),
        ("scontrol: error: Munge encode failed: Failed to access", Unreachable),
        ("slurm_load_jobs error: Zero Bytes were transmitted or received", Unreachable),
        ("Job/step already completing or completed", AlreadySo),
        ("Requested operation is presently disabled", Refused),
        ("", Refused),
    ],
)
def test_35_what_a_failure_means(stderr: str, error: type[Exception]) -> None:
    found = failure_of("scontrol update", 1, stderr)
    assert type(found) is error
    assert str(found).startswith("scontrol update: ")


def test_a_command_that_was_killed_tells_nothing() -> None:
    assert isinstance(failure_of("squeue", -9, ""), Unreachable)


def test_steps() -> None:
    assert not has_steps("7.batch\n7.extern\n")
    assert has_steps("7.batch\n7.0\n")
    assert has_steps("4_3.12")


def test_dependencies() -> None:
    assert plain("afterok:3(unfulfilled),afterany:4_*(failed)") == "afterok:3,afterany:4"
    assert plain("afterok:4_2(unfulfilled)?singleton(unfulfilled)") == "afterok:4_2?singleton"
    assert waits_for("afterok:3(unfulfilled)", {"3"})
    assert waits_for("afterany:4_*", {"4_2"})
    assert waits_for("aftercorr:4_2", {"4_2"})
    assert not waits_for("afterok:4_1", {"4_2"})
    assert not waits_for("singleton", {"3"})
