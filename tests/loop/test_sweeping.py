"""A directory that is to go, with what the mounts have hidden in it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from cachexfs.durability.actions import Slot
from cachexfs.pfs import source as module
from cachexfs.pfs.source import Source
from cachexfs.ram.journal import Journal
from cachexfs.ram.node import ROOT
from cachexfs.ram.tree import Tree

DIRECTORY = Slot(ROOT, b"ckpt")


@pytest.fixture
def source(tmp_path: Path) -> Source:
    (tmp_path / "source/ckpt").mkdir(parents=True)
    return Source(tmp_path / "source", Tree(Journal(tmp_path / "journal.db")), 2.0)


@pytest.mark.parametrize("times", [1, 3])
def test_another_node_tries_to_publish_into_it_meanwhile(
    source: Source, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    ckpt, real, left = source.path / "ckpt", os.rmdir, times

    def rmdir(name: bytes, *, dir_fd: int) -> None:
        nonlocal left
        if left:
            left -= 1
            (ckpt / f".cachexfs-b-{left}.tmp").touch()
        real(name, dir_fd=dir_fd)

    monkeypatch.setattr(module.os, "rmdir", rmdir)
    source.remove_directory(DIRECTORY)
    assert not ckpt.exists()


def test_a_file_of_a_program_stays(source: Source) -> None:
    ckpt = source.path / "ckpt"
    (ckpt / "shard").touch()
    (ckpt / ".cachexfs-b-1.tmp").touch()
    with pytest.raises(OSError) as caught:
        source.remove_directory(DIRECTORY)
    assert caught.value.errno == errno.ENOTEMPTY
    assert os.listdir(ckpt) == ["shard"]
