"""A file is durable when it would be found by its name, not before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cachexfs.demo.faults import Fault
from cachexfs.demo.faulty_storage import FaultyStorage
from tests.cluster_of_nodes import eventually, nodes, run

pytestmark = pytest.mark.fuse


def test_a_file_is_not_durable_before_its_new_name_is(
    tmp_path: Path, faulty_storage: FaultyStorage
) -> None:
    with nodes(tmp_path, source=faulty_storage.mountpoint) as (node,):
        mount = node.mount()
        with faulty_storage.fault(Fault(ops=("rename",), name="final", errno="EIO")):
            (mount / "temporary").write_bytes(b"bytes")
            node.wait("durable", "temporary")
            os.rename(mount / "temporary", mount / "final")
            assert state(node.mountpoint / "final") == "captured"
            assert node.ls("final")[0]["state"] == "captured"
            assert [file["path"] for file in node.report()["pending"]] == ["final"]
            done = run("wait", mount / "final", "--for", "durable", "--timeout", "0.2", check=False)
            assert done.returncode == 75
            assert "final is captured" in done.stderr
            assert not (faulty_storage.backing / "final").exists()
        node.wait("durable", "final")
        assert (faulty_storage.backing / "final").read_bytes() == b"bytes"
        eventually(lambda: state(mount / "final") == "durable")


def state(path: Path) -> str:
    """What the virtual attribute says."""
    return os.getxattr(path, "user.cachexfs.state").decode()
