"""Sensors on the nodes of a real Slurm: they say who works, and who is off its GPUs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from lazerd.backend.protocol import Gone, Rung, Working
from lazerd.sensor.cluster import ClusterSensors, sensors_of
from lazerd.sensor.reading import GpuReading, Process, Reading
from lazerd.sensor.reporter import Pace, Reporter
from tests.slurm_cluster import SlurmCluster, slurm_cluster, why_not_here
from tests.slurm_daemon import daemon_on

pytestmark = [
    pytest.mark.skipif(bool(why_not_here()), reason=why_not_here() or "Slurm is here"),
    pytest.mark.root,
]

SECRET = b"0123456789abcdef"
PACE = Pace(interval_s=0.05, answer_s=2.0, first_wait_s=0.05, longest_wait_s=0.1)


@pytest.fixture
def cluster() -> Iterator[SlurmCluster]:
    with slurm_cluster(nodes=2, gpus=1) as made:
        yield made


@pytest.fixture
def sensors(tmp_path: Path) -> ClusterSensors:
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    secret.chmod(0o600)
    found = sensors_of({"sensors": "127.0.0.1:0", "secret_file": str(secret)})
    assert isinstance(found, ClusterSensors)
    return found


class Look:
    """What a node's sensor sees: one GPU, and a job on it that is as busy as the test says."""

    def __init__(self) -> None:
        self.job = ""
        self.sm_percent = 0

    def __call__(self) -> Reading:
        processes = (Process(7, self.job, 1 << 30, self.sm_percent),) if self.job else ()
        return Reading((GpuReading(0, "G", processes=processes),))


@pytest.mark.trio
async def test_36_37_working_is_what_was_seen_and_gone_is_what_was_seen_gone(
    cluster: SlurmCluster, sensors: ClusterSensors
) -> None:
    looks = {"n1": Look(), "n2": Look()}
    job = cluster.sbatch("sleep 60", "--nodes=2", "--ntasks-per-node=1")
    async with daemon_on(cluster, eyes=sensors) as daemon, trio.open_nursery() as nursery:
        for node, look in looks.items():
            reporter = Reporter("127.0.0.1", sensors.port, node, SECRET, look, PACE)
            nursery.start_soon(reporter.run)
        await daemon.start(job, ((0, 1), (1, 1)))
        for look in looks.values():
            look.job = job
        await trio.sleep(0.5)
        assert not daemon.of(Working), "a long download at 0 % is set-up"
        for look in looks.values():
            look.sm_percent = 70
        working = await daemon.sees(Working, job)
        assert working.evidence.rung is Rung.BUSY
        assert daemon.backend.problems() == []
        asked_s = time.monotonic()
        await daemon.backend.preempt(job, 15, 4.0)
        with trio.move_on_after(3):
            await daemon.sees(Gone, job)
        assert cluster.state(job) == "PENDING", "for Slurm it is gone,"
        assert not daemon.of(Gone), "but an orphan of it is still on the GPUs"
        for look in looks.values():
            look.job = ""
        await daemon.sees(Gone, job)
        assert time.monotonic() - asked_s < 8
        nursery.cancel_scope.cancel()


def test_what_is_wrong_with_the_settings_is_one_sentence(tmp_path: Path) -> None:
    for options in ({"sensors": "host"}, {"sensors": "h:1", "secret_file": str(tmp_path / "no")}):
        with pytest.raises(ValueError, match=r"^slurm.options.sensors: "):
            sensors_of(options)
