"""How far passthrough reaches, after any refusals."""

from __future__ import annotations

import errno
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachexfs.mount.reach import PASSING, WHY, Place, Reach

ELSEWHERE = [Place.SOURCE, Place.OVERFLOW]


def refusal(code: int) -> OSError:
    return OSError(code, os.strerror(code))


def test_at_first_it_reaches_everywhere() -> None:
    assert all(map(Reach().takes, Place))
    assert Reach().data_path == "passthrough"
    assert Reach().reason == "the kernel reads and writes the RAM tier"


@pytest.mark.parametrize("code", [*WHY, errno.EIO])
def test_without_the_ram_tier_the_mount_is_portable_and_says_why(code: int) -> None:
    reach = Reach().without(Place.RAM, refusal(code))
    assert not any(map(reach.takes, Place))
    assert reach.data_path == "portable"
    assert WHY.get(code, "Input/output error") in reach.reason
    assert errno.errorcode[code] in reach.reason


@pytest.mark.parametrize("place", ELSEWHERE)
def test_a_refusal_elsewhere_leaves_the_ram_tier_as_it_is(place: Place) -> None:
    reach = Reach().without(place, refusal(errno.ELOOP))
    assert [p for p in Place if not reach.takes(p)] == [place]
    assert reach.data_path == "passthrough"
    assert reach.reason == (
        f"the kernel reads and writes the RAM tier; {place.value} through the daemon: "
        "it is stacked on another file system, as overlayfs is (ELOOP)"
    )


@pytest.mark.parametrize("place", Place)
@pytest.mark.parametrize("code", sorted(PASSING))
def test_a_shortage_says_nothing_of_the_next_file(place: Place, code: int) -> None:
    assert Reach().without(place, refusal(code)) == Reach()


def test_what_has_never_been_had_keeps_its_reason() -> None:
    reach = Reach("Linux 6.8 offers no passthrough")
    assert reach.without(Place.SOURCE, refusal(errno.EPERM)).reason == reach.reason


@given(st.lists(st.tuples(st.sampled_from(Place), st.sampled_from([*WHY, *PASSING]))))
def test_what_is_refused_stays_refused(refusals: list[tuple[Place, int]]) -> None:
    reach = Reach()
    for place, code in refusals:
        before = [p for p in Place if reach.takes(p)]
        reach = reach.without(place, refusal(code))
        assert {p for p in Place if reach.takes(p)} <= set(before)
        assert reach.takes(place) == (place in before and code in PASSING)
    assert (reach.data_path == "passthrough") == reach.takes(Place.RAM)
