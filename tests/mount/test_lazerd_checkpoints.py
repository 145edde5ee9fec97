"""A job of lazerd saves to a mount of CacheX-FS: lazerd hears when its checkpoint is safe."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cachexfs.demo.faults import Fault
from cachexfs.demo.faulty_storage import FaultyStorage
from tests.cluster_of_nodes import nodes
from tests.lazerd_at_work import lazerd

SAVES = (
    "import sys, time; from pathlib import Path\n"
    "directory = Path(sys.argv[1]) / 'step-1'; directory.mkdir()\n"
    "for n in range(3): (directory / f'shard-{n}').write_bytes(b'x' * 100_000)\n"
    "print('saved', flush=True); time.sleep(60)"
)


@pytest.mark.fuse
def test_a_checkpoint_that_is_durable_is_known(
    tmp_path: Path, faulty_storage: FaultyStorage
) -> None:
    with nodes(tmp_path, source=faulty_storage.mountpoint) as (node,):
        at = node.mount()
        state = (
            f'[checkpoints]\nstate_dir = "{node.home}/state"\nlevel = "durable"\npoll = "200ms"\n'
        )
        with lazerd(tmp_path / "lazer", policy="srsf/nosetup", more=state) as daemon:
            with faulty_storage.fault(Fault(hang=True, ops=("write",))):
                job = daemon.submit(sys.executable, "-S", "-c", SAVES, str(at))
                daemon.until(lambda: "saved" in daemon.output(job))
                daemon.until(lambda: {"lazer:1"} == {f["job"] for f in node.report()["pending"]})
                found = daemon.explain(job)
                assert (found["state"], found["safe_checkpoint_at"]) == ("setup", None)
            found = daemon.until_state(job, "working")  # who saves has ended its set-up
            assert found["evidence"] == "its first checkpoint is safe"
            daemon.until(lambda: daemon.explain(job)["safe_checkpoint_at"])
