"""A daemon that ends by a defect of its own, and not by a signal: the next one goes on."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from cachexfs.demo.faults import Fault
from cachexfs.demo.faulty_storage import FaultyStorage
from tests.cluster_of_nodes import nodes

pytestmark = [pytest.mark.fuse, pytest.mark.root]

DEFECT = """
import os
import trio
from cachexfs.tracker import Tracker

async def insist(self):
    while True:
        await trio.sleep(0.05)
        if os.path.exists({mark!r}):
            os.unlink({mark!r})
            raise RuntimeError("made up by a test")

Tracker.insist = insist
"""


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that ends the daemon by an exception, once."""
    mark, patches = tmp_path / "mark", tmp_path / "patches"
    patches.mkdir()
    (patches / "sitecustomize.py").write_text(DEFECT.format(mark=str(mark)))
    paths = [str(patches), str(Path(__file__).parents[2])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    return mark


def test_nothing_captured_is_lost_and_every_request_is_answered(
    tmp_path: Path, faulty_storage: FaultyStorage, mark: Path
) -> None:
    """The mount was empty when it began: so nothing in it was worth keeping then."""
    with nodes(tmp_path, "a", faulty_storage.mountpoint) as (node,):
        node.mount()
        faulty_storage.set_fault(Fault(errno="EIO", ops=("create", "write")))
        (node.mountpoint / "captured").write_bytes(b"precious")
        daemon = node.daemon()
        mark.touch()
        node.wait_for_another(daemon)
        looked = subprocess.run(
            ["cat", node.mountpoint / "captured"],
            capture_output=True,
            text=True,
            timeout=20,
        )
        assert looked.stdout == "precious"
        faulty_storage.clear()
        node.wait("durable", timeout_s=30)
        assert (faulty_storage.backing / "captured").read_bytes() == b"precious"
        assert "made up by a test" in node.log
