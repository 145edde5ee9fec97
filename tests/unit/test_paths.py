"""Paths from the wire: what passes stays below the root and has one spelling."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachexfs.peers.paths import BadPath, ancestors, check, check_prefix

NAMES = st.binary(min_size=1, max_size=255).filter(
    lambda name: b"/" not in name and b"\0" not in name and name not in (b".", b"..")
)


@given(st.lists(NAMES, min_size=1, max_size=10))
def test_every_name_that_linux_allows_passes(names: list[bytes]) -> None:
    path = b"/".join(names)
    assert check(path) == path
    assert ancestors(path) == [b"/".join(names[:n]) for n in range(1, len(names))]


@given(st.binary(max_size=40))
def test_what_passes_never_leaves_the_root(path: bytes) -> None:
    try:
        check(path)
    except BadPath:
        return
    assert os.path.normpath(b"/root/" + path) == b"/root/" + path


@pytest.mark.parametrize(
    "path", [b"/a", b"a/", b"a//b", b".", b"..", b"a/..", b"../a", b"a/./b", b"a\0", b"n" * 256,
             b"a/" * 2048 + b"a"],
)  # fmt: skip
def test_what_is_no_path_is_refused(path: bytes) -> None:
    with pytest.raises(BadPath):
        check_prefix(path)


def test_only_a_prefix_may_be_empty() -> None:
    assert check_prefix(b"") == b""
    with pytest.raises(BadPath):
        check(b"")
