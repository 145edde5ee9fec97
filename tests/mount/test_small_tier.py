"""A RAM tier that is too small: slower, never wrong, never ENOSPC."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from tests.cluster_of_nodes import eventually, listed, nodes

MIB = 1 << 20


def write(path: Path, size: int) -> str:
    """Write `size` bytes that do not repeat; returns their digest."""
    digest = hashlib.sha256()
    with path.open("wb", buffering=0) as file:
        for _ in range(size // MIB):
            block = os.urandom(MIB)
            digest.update(block)
            file.write(block)
    return digest.hexdigest()


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.fuse
@pytest.mark.parametrize("data_path", ["auto", "portable"])
@pytest.mark.parametrize("spill", [False, True])
def test_files_larger_than_the_whole_tier_are_written_correctly(
    tmp_path: Path, data_path: str, spill: bool
) -> None:
    extra = f'[ram]\nlimit = "32MiB"\n[mount]\ndata_path = "{data_path}"\n'
    extra += f'[spill]\npath = "{tmp_path}/spill"\n' if spill else ""
    with nodes(tmp_path, "a", extra=extra) as (a,):
        a.mount()
        digests = {name: write(a.mountpoint / name, 80 * MIB) for name in ("one", "two")}
        assert {name: digest_of(a.mountpoint / name) for name in digests} == digests
        a.wait("durable")
        assert {name: digest_of(a.source / name) for name in digests} == digests
        eventually(lambda: a.report()["ram"]["used_bytes"] < 32 * MIB, "the tier has room again")
        a.umount()
        assert listed(a.source) == ["one", "two"]
        assert not list((tmp_path / "spill").rglob("*")) or not spill
