"""What was moved out of the RAM tier for want of room is there for the next daemon."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cachexfs.demo.faults import Fault
from cachexfs.demo.faulty_storage import FaultyStorage
from tests.cluster_of_nodes import nodes

pytestmark = [pytest.mark.root, pytest.mark.fuse]


def test_a_file_in_the_spill_directory_outlives_the_daemon(tmp_path: Path) -> None:
    for name in ("backing", "source", "spill"):
        (tmp_path / name).mkdir()
    extra = (
        f'[ram]\nlimit = "32MiB"\n[mount]\nfsync = "captured"\n[spill]\npath = "{tmp_path}/spill"\n'
    )
    content = os.urandom(48 << 20)
    with (
        FaultyStorage(tmp_path / "backing", tmp_path / "source") as storage,
        nodes(tmp_path, "a", tmp_path / "source", extra) as (node,),
    ):
        node.mount()
        with storage.fault(Fault(errno="EDQUOT", ops=("write",))):
            (node.mountpoint / "f").write_bytes(content)
            assert list((tmp_path / "spill").iterdir())
            daemon = node.daemon()
            node.kill_only_daemon()
            node.wait_for_another(daemon)
            assert (node.mountpoint / "f").read_bytes() == content
        node.wait("durable")
        assert (tmp_path / "backing" / "f").read_bytes() == content
