"""Eight writers for a minute, with kill -9 of the daemon every two seconds.

    python -m pytest tests/crash/test_torture.py -m slow -s

No program sees an error, every byte is right in the mount and at the source, and the longest
operation took under two seconds.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.cluster_of_nodes import nodes
from tests.crash.under_fire import Troop, longest

SECONDS = float(os.environ.get("CACHEXFS_TORTURE_S", "60"))
EVERY_S = 2.0
LONGEST_STALL_S = 2.0
KINDS = ("large", "large 2", "small", "small 2", "map", "rename", "append", "lock")


@pytest.mark.slow
@pytest.mark.fuse
@pytest.mark.root
@pytest.mark.timeout(SECONDS + 240)
def test_no_program_notices_kill_9_every_two_seconds(tmp_path: Path) -> None:
    with nodes(tmp_path, "ab", extra='[mount]\nfsync = "captured"\n') as (a, b):
        b.start_peer()
        a.mount()
        assert a.report()["data_path"] == "passthrough"
        troop = Troop.of(a, KINDS, SECONDS, seed=1)
        try:
            kills = 0
            while troop.is_busy():
                time.sleep(EVERY_S)
                a.kill_only_daemon()
                kills += 1
            said = troop.said()
        finally:
            troop.close()
            print(a.log)
        stall_s, whose = longest(said)
        operations = {name: one["operations"] for name, one in said.items()}
        print(f"{kills} kills; longest {stall_s:.2f} s ({whose}); operations {operations}")
        troop.check(a.mountpoint, said)
        a.wait("durable", timeout_s=100)
        troop.check(a.source, said)
        assert "Traceback" not in a.log, a.log
        assert a.report()["files"]["lost"] == 0
        assert stall_s < LONGEST_STALL_S, whose
