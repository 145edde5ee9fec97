"""The time that nodes share: it only grows, and what follows on something heard is later."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachexfs import clock
from cachexfs.clock import BELIEVED_NS, Clock

HOUR_NS = 3600 * 10**9


class Wall:
    """A wall clock that does what the test wants."""

    def __init__(self, at_ns: int) -> None:
        self.at_ns = at_ns

    def time_ns(self) -> int:
        return self.at_ns


steps = st.lists(
    st.tuples(st.sampled_from(["now", "heard", "wall"]), st.integers(-2 * HOUR_NS, 2 * HOUR_NS)),
    max_size=50,
)


@given(steps)
def test_it_only_grows(steps: list[tuple[str, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        wall = Wall(10 * HOUR_NS)
        patch.setattr(clock, "time", wall)
        shared, last_ns = Clock(), 0
        for what, by_ns in steps:
            if what == "wall":
                wall.at_ns = max(0, wall.at_ns + by_ns)
            elif what == "heard":
                shared.heard(last_ns + by_ns)
                last_ns = max(last_ns, last_ns + by_ns)
            else:
                now_ns = shared.now_ns()
                assert now_ns > last_ns
                last_ns = now_ns


def test_the_clock_that_is_furthest_ahead_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    wall = Wall(10 * HOUR_NS)
    monkeypatch.setattr(clock, "time", wall)
    shared = Clock()
    shared.heard(11 * HOUR_NS)
    wall.at_ns += 5
    assert shared.now_ns() == 11 * HOUR_NS + 5 and shared.ahead_s == 3600
    shared.heard(9 * HOUR_NS)
    shared.heard(0)
    assert shared.ahead_s == 3600
    wall.at_ns += 2 * HOUR_NS  # it was set right: the others have not changed, so it stays ahead
    assert shared.now_ns() == 13 * HOUR_NS + 5


def test_a_clock_of_another_century_is_not_followed() -> None:
    shared = Clock()
    shared.heard(BELIEVED_NS)
    assert shared.ahead_s == 0 and shared.now_ns() < BELIEVED_NS
