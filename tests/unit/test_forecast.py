"""The size of the next file of a pattern."""

from __future__ import annotations

import pytest

from cachexfs.ram.forecast import PATTERNS_AT_MOST, Forecast, pattern_of


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        (b"latest", b"latest"),
        (b"run7/step-00100/shard-3-of-8.pt", b"run#/step-#/shard-#-of-#.pt"),
        (b"\xff1", b"\xff#"),
    ],
)
def test_digits_do_not_tell_files_of_a_series_apart(path: bytes, pattern: bytes) -> None:
    assert pattern_of(path) == pattern


def test_a_directory_belongs_to_the_pattern() -> None:
    assert pattern_of(b"optimizer/0") != pattern_of(b"model/0")


def test_one_odd_size_does_not_decide() -> None:
    forecast = Forecast()
    assert forecast.size_of(b"a") == 0
    for size, expected in [(100, 100), (5, 100), (102, 100), (104, 102), (104, 104)]:
        forecast.learn(b"a", size)
        assert forecast.size_of(b"a") == expected


def test_the_table_is_bounded() -> None:
    forecast = Forecast()
    forecast.learn(b"old", 1)
    forecast.learn(b"used", 1)
    for number in range(PATTERNS_AT_MOST - 1):
        forecast.size_of(b"used")
        forecast.learn(b"%d" % number, 1)
    assert (forecast.size_of(b"old"), forecast.size_of(b"used")) == (0, 1)
