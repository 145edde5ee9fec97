"""Slurm's host lists."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachexfs.errors import ConfigError
from cachexfs.peers.hostlist import MAX_HOSTS, expand

EXAMPLES = {
    "": [],
    "head": ["head"],
    "gpu[001-004,7],head": ["gpu001", "gpu002", "gpu003", "gpu004", "gpu7", "head"],
    "r[1-2]n[08-10]": ["r1n08", "r1n09", "r1n10", "r2n08", "r2n09", "r2n10"],
    "gpu[1-2]-ib,gpu1-ib": ["gpu1-ib", "gpu2-ib"],
    "node[099-101]": ["node099", "node100", "node101"],
    " a,b ": ["a", "b"],
}


@pytest.mark.parametrize(("text", "names"), EXAMPLES.items())
def test_examples(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    "text", ["a[", "a]", "a[1-", "a[[1]]", "a[x]", "a[3-1]", "a,,b", "a b", "a[0-99999999]", "a[]"]
)
def test_what_is_no_host_list_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        expand(text)


def test_a_product_of_ranges_is_bounded() -> None:
    with pytest.raises(ConfigError, match=str(MAX_HOSTS)):
        expand("a[0-9999]b[0-9999]")


@given(st.lists(st.integers(0, 9999), min_size=1, max_size=50), st.integers(1, 5))
def test_what_is_folded_unfolds(numbers: list[int], width: int) -> None:
    text = "n[" + ",".join(str(number).zfill(width) for number in numbers) + "]"
    assert expand(text) == list(dict.fromkeys(f"n{number:0{width}}" for number in numbers))


@given(st.text(alphabet="ab[]0123-,", max_size=30))
def test_nothing_but_the_named_error_comes_out(text: str) -> None:
    try:
        names = expand(text)
    except ConfigError:
        return
    assert len(set(names)) == len(names) <= MAX_HOSTS and all(names)
