"""The local backend with real processes and the real sensor, over the fake NVML."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from lazerd.backend.protocol import Began, Gone, NodeUp, Rung, Stuck, Working
from lazerd.sensor.local import LocalSensor
from lazerd.sensor.nvml import Nvml
from lazerd.sensor.ownership import LAZER
from lazerd.sensor.processes import JobFinder
from lazerd.sensor.watch import Watch
from tests.fake_nvml.world import GPU_IS_LOST, FakeNvml, Fault, Held
from tests.loop.lazerd_stage import PATIENCE_S, Stage, stage

pytest_plugins = ["tests.fake_nvml.fixture"]
pytestmark = pytest.mark.trio

WAITS = "import os, time; print('pid', os.getpid(), flush=True); time.sleep(60)"
NOBODY = 4_000_000
"""A pid beyond what Linux gives (pid_max is 4194304 at most, and here far from reached)."""


@pytest.fixture
def sensor(fake_nvml: FakeNvml) -> Iterator[LocalSensor]:
    nvml = Nvml()
    yield LocalSensor(Watch(nvml, JobFinder(LAZER, trusts_pids=True).job_of))
    nvml.close()


async def pid_of(s: Stage, job_id: str) -> int:
    await s.says(job_id, "\n")
    return int(s.output(job_id).split()[1])


async def test_set_up_is_seen_then_work_then_a_preemption_that_ends_when_the_gpus_are_empty(
    fake_nvml: FakeNvml, sensor: LocalSensor, tmp_path: Path
) -> None:
    async with stage(tmp_path, sensor) as s:
        await s.script("1", WAITS, gpus=2)
        pid = await pid_of(s, "1")
        held = Held()
        for gpu in fake_nvml.gpus:
            gpu.processes[pid] = held
        fake_nvml.write()
        await trio.sleep(0.6)
        assert "Working" not in s.listener.kinds()
        held.sm_percent = 70
        fake_nvml.write()
        working = await s.listener.kind(Working, "1")
        assert isinstance(working, Working)
        assert working.evidence.rung is Rung.BUSY
        await s.backend.preempt("1", 15, 5.0)
        await trio.sleep(0.6)  # the process is gone; the driver has not torn its context down
        assert "Gone" not in s.listener.kinds()
        for gpu in fake_nvml.gpus:
            gpu.processes.clear()
        fake_nvml.write()
        await s.listener.kind(Gone, "1")


async def test_31_an_orphan_keeps_its_gpu_and_nobody_else_gets_it(
    fake_nvml: FakeNvml, sensor: LocalSensor, tmp_path: Path
) -> None:
    async with stage(tmp_path, sensor, bound_s=0.5) as s:
        await s.script("1", WAITS)
        await s.says("1", "pid")
        fake_nvml.gpus[0].processes[NOBODY] = Held()
        fake_nvml.write()
        await s.backend.preempt("1", 15, 5.0)
        stuck = await s.listener.kind(Stuck, "1")
        assert isinstance(stuck, Stuck)
        assert str(NOBODY) in stuck.why
        await s.start("2", "sleep", "30")
        await s.listener.kind(Began, "2")
        assert s.backend.allotment.held_by("2") == (1,)
        fake_nvml.gpus[0].processes.clear()
        fake_nvml.write()
        await s.listener.kind(Gone, "1")


async def test_a_gpu_that_is_occupied_from_the_start_is_not_offered(
    fake_nvml: FakeNvml, sensor: LocalSensor, tmp_path: Path
) -> None:
    fake_nvml.gpus[0].used_bytes = 5 << 30
    fake_nvml.write()
    async with stage(tmp_path, sensor) as s:
        assert await s.listener.kind(NodeUp) == NodeUp(0, 1, "")
        fake_nvml.gpus[0].used_bytes = 0
        fake_nvml.write()
        assert await s.listener.hears(lambda r: r == NodeUp(0, 2, ""))


async def test_a_gpu_that_is_lost_is_taken_off_and_told(
    fake_nvml: FakeNvml, sensor: LocalSensor, tmp_path: Path
) -> None:
    async with stage(tmp_path, sensor) as s:
        fake_nvml.faults = [Fault("Handle", gpu=1, code=GPU_IS_LOST)]
        fake_nvml.write()
        await s.listener.hears(lambda r: r == NodeUp(0, 1, ""))
        with trio.fail_after(PATIENCE_S):
            while "GpuLost" not in {p.code for p in s.backend.problems()}:  # noqa: ASYNC110
                await trio.sleep(0.05)
