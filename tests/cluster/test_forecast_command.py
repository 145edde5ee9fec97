"""The durability model on real mounts: what is measured, forecast, chosen, and said."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cachexfs.demo.faults import Fault
from cachexfs.demo.faulty_storage import FaultyStorage
from cachexfs.durability.latency.sample import MEASURED_PHASES
from cachexfs.durability.writing import WRITES
from cachexfs.measurements.record import Record
from cachexfs.measurements.store import FILE_NAME, Store
from tests.cluster_of_nodes import Node, eventually, listed, nodes, run

pytestmark = pytest.mark.fuse

SIZE = 4 << 20


def policy(path: str) -> str:
    return f'[policy]\npath = "{path}"\n'


def save(node: Node, name: str, size: int = SIZE) -> Path:
    """A file of its own content."""
    path = node.mountpoint / name
    path.write_bytes(os.urandom(1 << 16) * (size >> 16))
    return path


def records(node: Node) -> list[Record]:
    """What is on disk."""
    store = Store(node.state / FILE_NAME, readonly=True)
    try:
        return store.records()
    finally:
        store.close()


def ended(node: Node, phase: str) -> list[Record]:
    return [one for one in records(node) if one.phase == phase and one.state == "ended"]


def forecast(node: Node, *arguments: str | Path) -> dict[str, Any]:
    done = run("forecast", node.mountpoint, "--json", *arguments)
    made: dict[str, Any] = json.loads(done.stdout)
    return made


def replicas(node: Node) -> int:
    """Files in the replica store."""
    return len(list((node.store / "data").iterdir()))


@pytest.fixture
def stalled(tmp_path: Path) -> Iterator[tuple[Node, Node, FaultyStorage]]:
    """Node a with node b as its peer, over a source that can be made to hang."""
    (tmp_path / "backing").mkdir()
    (tmp_path / "storage").mkdir()
    with (
        FaultyStorage(tmp_path / "backing", tmp_path / "storage") as storage,
        nodes(tmp_path, "ab", source=tmp_path / "storage") as (a, b),
    ):
        b.start_peer()
        a.mount()
        yield a, b, storage


# --- measured -------------------------------------------------------------------------------------


def test_every_phase_is_measured_and_survives_a_restart(pair: tuple[Node, Node]) -> None:
    a, _ = pair
    for i in range(3):
        save(a, f"shard-{i}")
    a.wait("durable")
    eventually(lambda: len(ended(a, "durable")) == 3 and len(ended(a, "replicate")) == 3, "records")
    for phase in ("capture", "replicate", "flush", "commit", "durable", "safe"):
        made = ended(a, phase)
        assert [one.size_bytes for one in made] == [SIZE] * 3, phase
        assert all(one.quantiles and 0 < one.elapsed_s < 20 for one in made), phase
    assert {one.source for one in ended(a, "replicate")} == {"b"}
    openings = ended(a, "opening")
    assert [one.size_bytes for one in openings] == [0] * 3
    for kind in WRITES.values():
        writes = ended(a, kind)
        begun = [one.begin_s for one in writes]
        assert begun == pytest.approx([one.begin_s for one in openings], rel=0, abs=1e-3), kind
        assert all(one.quantiles for one in writes), kind
    before = len(records(a))
    run("restart", a.mountpoint)
    save(a, "later")
    a.wait("durable")
    eventually(lambda: len(ended(a, "durable")) == 4, "a record by the next daemon")
    assert len(records(a)) >= before + 5


def test_a_flush_that_does_not_end_is_censored_when_the_daemon_dies(
    stalled: tuple[Node, Node, FaultyStorage],
) -> None:
    """It fails again and again; a storage that hangs would keep the daemon from dying."""
    a, _, storage = stalled
    with storage.fault(Fault(errno="EDQUOT", ops=("write",))):
        save(a, "shard")
        eventually(
            lambda: [one for one in records(a) if one.phase == "flush" and one.elapsed_s > 3],
            "the flush that is running",
        )
        daemon = a.pid()
        a.kill_only_daemon()
        a.wait_for_another(daemon)
    a.wait("durable")
    (flush,) = [one for one in records(a) if one.phase == "flush" and one.state == "given up"]
    assert flush.sample().censored and flush.elapsed_s > 3


# --- forecast -------------------------------------------------------------------------------------


def test_a_file_on_its_way_says_when(stalled: tuple[Node, Node, FaultyStorage]) -> None:
    a, _, storage = stalled
    save(a, "first")
    a.wait("durable")
    (done,) = a.ls("first")
    assert (done["eta_replicated_s"], done["eta_durable_s"]) == (0, 0)
    with storage.fault(Fault(errno="EDQUOT", ops=("write",))):
        save(a, "shard")
        a.wait("replicated", "shard")
        (soon,) = a.report()["pending"]
        time.sleep(2)
        (later,) = a.report()["pending"]
        made = forecast(a)
        screen = run("forecast", a.mountpoint / "shard").stdout
    assert soon["eta_replicated_s"] == later["eta_replicated_s"] == 0
    assert 0 < soon["eta_durable_s"] < later["eta_durable_s"]  # it has waited: it will wait
    (pending,) = made["pending"]
    assert pending["path"] == "shard" and pending["state"] == "replicated"
    assert pending["durable"]["q95_s"] > pending["durable"]["median_s"] > 0
    assert "shard" in screen and "lost work now" in screen


FIELDS = {
    "schema", "mountpoint", "at_s", "fitted_at_s", "phases", "write", "pending", "checkpoint",
    "lost_work", "intervals", "recommended", "score", "notes",
}  # fmt: skip


def test_the_forecast_of_a_mount_that_measured_nothing(node: Node) -> None:
    made = forecast(node)
    assert set(made) == FIELDS
    assert [phase["family"] for phase in made["phases"]] == ["prior"] * len(MEASURED_PHASES)
    assert made["recommended"]["path"] == "direct" and made["intervals"] is None
    assert made["notes"] == ["little was measured yet: these are the prior's figures"]
    assert "prior" in run("forecast", node.mountpoint).stdout


def test_forecast_score_and_figure_after_some_saves(
    pair: tuple[Node, Node], tmp_path: Path
) -> None:
    a, _ = pair
    for step in range(3):
        for i in range(4):
            save(a, f"step-{step}-shard-{i}")
        a.wait("durable")
        time.sleep(5.2)  # checkpoints are told apart by the gaps between them
    eventually(lambda: len(ended(a, "durable")) == 12, "the records")
    made = forecast(a, "--plot", tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    fitted = {phase["phase"]: phase for phase in made["phases"]}
    # All twelve, or those after a change of regime: how a busy machine writes may have changed.
    assert 4 <= fitted["flush"]["samples"] <= 12 and fitted["flush"]["family"] != "prior"
    assert fitted["replicate"]["time"]["q95_s"] >= fitted["replicate"]["time"]["median_s"]
    scores = {one["phase"]: one for one in made["score"]}
    assert scores["safe"]["forecasts"] == 12 and set(scores["flush"]["coverage"]) == {
        "50", "90", "95"
    }  # fmt: skip
    assert 5 < made["lost_work"]["interval_s"] < 20
    assert made["lost_work"]["now_s"] > 5
    assert set(made["lost_work"]["at_random"]) == {"replica", "direct", "both"}
    assert [rule["rule"] for rule in made["intervals"]["rules"]] == ["young", "daly", "simulated"]
    assert made["intervals"]["nodes"] == 2
    assert {offer["path"] for offer in made["recommended"]["offers"]} == {
        "replica", "direct", "both"
    }  # fmt: skip


def test_a_figure_of_an_unknown_kind(node: Node, tmp_path: Path) -> None:
    done = run("forecast", node.mountpoint, "--plot", tmp_path / "figure.nonsense", check=False)
    assert done.returncode == 2 and "--plot" in done.stderr and "Traceback" not in done.stderr


def test_neither_daemon_nor_status_load_numpy(node: Node) -> None:
    save(node, "file")
    node.wait("durable")
    forecast(node)
    maps = Path(f"/proc/{node.pid()}/maps").read_text()
    assert "numpy" not in maps and "scipy" not in maps
    for command in ("status", "ls"):
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "cachexfs", command, node.mountpoint],
            capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
        assert not {"numpy", "scipy", "trio"} & loaded, command


# --- chosen ---------------------------------------------------------------------------------------


def test_direct_sends_nothing_and_fsync_keeps_its_level(tmp_path: Path) -> None:
    with nodes(tmp_path, "ab", extra=policy("direct")) as (a, b):
        b.start_peer()
        a.mount()
        assert a.report()["fsync"] == "replicated"
        fd = os.open(a.mountpoint / "file", os.O_CREAT | os.O_WRONLY)
        os.write(fd, b"x" * SIZE)
        os.fsync(fd)
        (synced,) = a.ls("file")
        assert synced["state"] == "durable"
        os.close(fd)
        assert (a.source / "file").read_bytes() == b"x" * SIZE
        assert replicas(b) == 0
        assert ended(a, "replicate") == []


def test_replica_flushes_when_the_peer_has_it(tmp_path: Path) -> None:
    with nodes(tmp_path, "ab", extra=policy("replica")) as (a, b):
        b.start_peer()
        a.mount()
        for i in range(3):
            save(a, f"shard-{i}")
        a.wait("durable")
        assert replicas(b) == 3
        eventually(lambda: len(ended(a, "flush")) == 3, "the records")
        copied = {one.begin_s + one.elapsed_s for one in ended(a, "replicate")}
        for flush in ended(a, "flush"):
            assert min(abs(flush.begin_s - moment) for moment in copied) < 0.2


@pytest.mark.parametrize("how", ["wait", "patience"])
def test_replica_without_its_peer_becomes_durable_all_the_same(tmp_path: Path, how: str) -> None:
    with nodes(tmp_path, "ab", extra=policy("replica")) as (a, b):
        b.start_peer()
        a.mount()
        save(a, "first")
        a.wait("durable")
        b.stop_peer(signal.SIGKILL)
        save(a, "second")
        if how == "wait":  # who waits for it is not kept waiting for the peer
            a.wait("durable", "second", timeout_s=5)
        eventually(lambda: (a.source / "second").exists(), "its flush", timeout_s=20)


def test_auto_decides_and_says_why(tmp_path: Path) -> None:
    with nodes(tmp_path, "ab", extra=policy("auto")) as (a, b):
        b.start_peer()
        a.mount()
        for step in range(3):
            save(a, f"step-{step}")
            (a.mountpoint / "latest.tmp").write_text(f"step-{step}")
            (a.mountpoint / "latest.tmp").rename(a.mountpoint / "latest")
            if step:
                (a.mountpoint / f"step-{step - 1}").unlink()
        a.wait("durable")
        assert (a.source / "latest").read_text() == "step-2"
        assert listed(a.source) == ["latest", "step-2"]

        def decided() -> Any:
            return forecast(a)["recommended"]["recent"]

        recent = eventually(decided, "decisions")
        assert {one["path"] for one in recent} <= {"replica", "direct", "both"}
        assert any(one["offers"] for one in recent)
        assert "Traceback" not in a.log


def test_under_auto_the_peers_have_what_a_pointer_points_to(tmp_path: Path) -> None:
    """Node a dies after a rename; whatever way the files went, recovery sees one generation."""
    with nodes(tmp_path, "ab", extra=policy("auto")) as (a, b):
        b.start_peer()
        a.mount()
        for step in range(4):
            save(a, f"step-{step}", SIZE << (step % 3))
            (a.mountpoint / "latest.tmp").write_text(f"step-{step}")
            (a.mountpoint / "latest.tmp").rename(a.mountpoint / "latest")
            if step:
                (a.mountpoint / f"step-{step - 1}").unlink()
        a.wait("replicated")
        a.kill_mount()
        to = tmp_path / "recovered"
        to.mkdir()
        run("recover", "--to", to, "--volume", a.source, "--from", f"127.0.0.1:{b.port}", "-c",
            a.config, check=False)  # fmt: skip
        held = {path.name for path in to.iterdir()} | {path.name for path in a.source.iterdir()}
        for place in (to, a.source):
            if (place / "latest").exists():
                assert (place / "latest").read_text() in held
