"""The sensor of one machine against a fake NVML, through nvidia-ml-py and real processes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from lazerd.backend.protocol import GpuState, Rung, Sensor, Watched
from lazerd.sensor import nvml as nvml_module
from lazerd.sensor.errors import NvmlUnavailable
from lazerd.sensor.local import UNSEEN, LocalSensor
from lazerd.sensor.nvml import Nvml
from lazerd.sensor.ownership import LAZER
from lazerd.sensor.processes import JobFinder
from lazerd.sensor.reading import Health, Reading
from lazerd.sensor.watch import Watch
from tests.fake_nvml.world import (
    DRIVER_NOT_LOADED,
    GPU_IS_LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    UNKNOWN,
    FakeGpu,
    FakeNvml,
    Fault,
    Held,
)

pytest_plugins = ["tests.fake_nvml.fixture"]

GIB = 1 << 30
LIMIT_S = 1.0


class Clock:
    """Seconds that the test lets pass."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sensor(fake_nvml: FakeNvml, clock: Clock) -> Iterator[LocalSensor]:
    nvml = Nvml(clock=clock)
    finder = JobFinder(LAZER, trusts_pids=True)
    yield LocalSensor(Watch(nvml, finder.job_of, nvml_limit_s=LIMIT_S))
    nvml.close()


@pytest.fixture
def worker() -> Iterator[subprocess.Popen[bytes]]:
    """A process of job 7, by its environment."""
    with subprocess.Popen(["sleep", "60"], env={"LAZER_JOB_ID": "7"}) as process:
        yield process
        process.kill()


def job(*pids: int, gpus: tuple[int, ...] = (0, 1)) -> Watched:
    return Watched("7", frozenset(pids), gpus)


def test_it_is_the_sensor_that_the_backend_asks_for(sensor: LocalSensor) -> None:
    port: Sensor = sensor
    assert [gpu.index for gpu in port.gpus()] == ["GPU-00000000", "GPU-00000001"]
    assert {gpu.state for gpu in port.gpus()} == {GpuState.EMPTY}
    assert port.problems() == []


def test_set_up_then_execution(fake_nvml: FakeNvml, sensor: LocalSensor) -> None:
    watched = job(100, 101)
    assert sensor.look([watched]).evidence["7"].rung is Rung.NOTHING
    for number, pid in enumerate((100, 101)):
        fake_nvml.gpus[number].processes[pid] = Held()
    fake_nvml.write()
    for _ in range(10):  # loads, compiles, downloads: NVML says NOT_FOUND
        look = sensor.look([watched])
        assert look.evidence["7"].rung is Rung.CONTEXT
        assert look.evidence["7"].complete
    fake_nvml.gpus[0].processes[100].sm_percent = 100
    fake_nvml.write()
    for _ in range(10):
        assert sensor.look([watched]).evidence["7"].rung is Rung.FIRST_KERNEL
    fake_nvml.gpus[1].processes[101].sm_percent = 3
    fake_nvml.write()
    rungs = [sensor.look([watched]).evidence["7"].rung for _ in range(3)]
    assert rungs == [Rung.FIRST_KERNEL, Rung.FIRST_KERNEL, Rung.BUSY]
    assert look.gpus[0].pids == {100}


def test_a_job_that_is_placed_again_starts_at_the_foot(
    fake_nvml: FakeNvml, sensor: LocalSensor
) -> None:
    fake_nvml.gpus[0].processes[100] = Held(sm_percent=50)
    fake_nvml.write()
    for _ in range(5):
        look = sensor.look([job(100, gpus=(0,))])
    assert look.evidence["7"].rung is Rung.BUSY
    assert sensor.look([job(200, gpus=(0,))]).evidence["7"].rung is Rung.NOTHING


def test_samples_are_not_counted_twice_nor_believed_when_absurd(
    fake_nvml: FakeNvml, sensor: LocalSensor
) -> None:
    fake_nvml.gpus[0].processes[100] = Held(sm_percent=80, at_us=time.time_ns() // 1000 + 200_000)
    fake_nvml.extra = ["sample 0 pid=0 sm=50", "sample 0 pid=100 sm=4000000", "sample 0 pid=9 sm=9"]
    fake_nvml.write()
    for _ in range(10):
        evidence = sensor.look([job(100, gpus=(0,))]).evidence["7"]
    assert evidence.rung in (Rung.CONTEXT, Rung.FIRST_KERNEL)


@pytest.mark.parametrize("dies", [False, True])
def test_cases_31_and_36_an_orphan_keeps_its_gpu(
    fake_nvml: FakeNvml, sensor: LocalSensor, worker: subprocess.Popen[bytes], dies: bool
) -> None:
    fake_nvml.gpus[0].processes[worker.pid] = Held(8 * GIB)
    fake_nvml.write()
    if dies:  # the process is gone, and the driver has not yet torn its context down
        worker.kill()
        worker.wait()
    gpu, other = sensor.look([]).gpus  # the job itself is over: nobody names it any more
    assert gpu.state is GpuState.OCCUPIED
    assert sensor.occupied_by(0) == {worker.pid}
    assert ("whose job is not known" if dies else "held by job 7") in gpu.detail
    assert other.state is GpuState.EMPTY
    del fake_nvml.gpus[0].processes[worker.pid]
    fake_nvml.gpus[0].used_bytes = 8 * GIB
    fake_nvml.write()
    assert sensor.look([]).gpus[0].state is GpuState.OCCUPIED
    assert sensor.occupied_by(0) == {UNSEEN}
    fake_nvml.gpus[0].used_bytes = 0
    fake_nvml.write()
    assert sensor.look([]).gpus[0].state is GpuState.EMPTY
    assert sensor.occupied_by(0) == frozenset()


@pytest.mark.parametrize("code", [UNKNOWN, DRIVER_NOT_LOADED])
def test_a_gpu_that_cannot_be_asked_is_not_taken_for_empty(
    fake_nvml: FakeNvml, sensor: LocalSensor, code: int
) -> None:
    fake_nvml.faults = [Fault(code=code)]
    fake_nvml.write()
    assert sensor.occupied_by(0) == {UNSEEN}


def test_a_worker_is_found_by_its_job_when_its_pid_is_not_named(
    fake_nvml: FakeNvml, sensor: LocalSensor, worker: subprocess.Popen[bytes]
) -> None:
    fake_nvml.gpus[0].processes[worker.pid] = Held(sm_percent=10)
    fake_nvml.write()
    assert sensor.look([job(1, gpus=(0,))]).evidence["7"].rung is Rung.FIRST_KERNEL
    # An orphan of an earlier placement, on a GPU that the job does not have now:
    assert sensor.look([job(1, gpus=(1,))]).evidence["7"].rung is Rung.NOTHING


def test_asking_whether_a_gpu_is_empty_takes_no_sample_away(
    fake_nvml: FakeNvml, sensor: LocalSensor
) -> None:
    watched, held = job(100, gpus=(0,)), Held()
    fake_nvml.gpus[0].processes[100] = held
    fake_nvml.write()
    sensor.look([watched])
    for _ in range(3):
        held.sm_percent, held.at_us = 50, time.time_ns() // 1000 + 1000
        fake_nvml.write()
        sensor.gpus()
        sensor.occupied_by(0)
        evidence = sensor.look([watched]).evidence["7"]
    assert evidence.rung is Rung.BUSY


def test_every_process_is_listed(fake_nvml: FakeNvml, sensor: LocalSensor) -> None:
    pids = range(1000, 1040)
    fake_nvml.gpus[0].processes = {pid: Held(GIB >> 4, sm_percent=pid % 7) for pid in pids}
    fake_nvml.write()
    assert sensor.occupied_by(0) == set(pids)
    assert sensor.gpus()[0].pids == set(pids)


def test_a_desktop_and_what_the_driver_reserves_do_not_make_a_gpu_occupied(
    fake_nvml: FakeNvml, sensor: LocalSensor
) -> None:
    fake_nvml.gpus[0].desktops[50] = GIB
    fake_nvml.gpus[1].reserved_bytes = GIB
    fake_nvml.write()
    assert {gpu.state for gpu in sensor.gpus()} == {GpuState.EMPTY}


def test_processes_under_mps_hold_their_gpu(fake_nvml: FakeNvml, sensor: LocalSensor) -> None:
    fake_nvml.gpus[0].through_mps[60] = Held(sm_percent=20)
    fake_nvml.write()
    assert sensor.look([job(60, gpus=(0,))]).evidence["7"].rung is Rung.FIRST_KERNEL


@pytest.mark.parametrize("call", ["Handle", "MemoryInfo", "ComputeRunningProcesses"])
def test_a_lost_gpu_is_reported_and_the_others_go_on(
    fake_nvml: FakeNvml, sensor: LocalSensor, call: str
) -> None:
    sensor.gpus()
    fake_nvml.faults = [Fault(call, gpu=0, code=GPU_IS_LOST)]
    fake_nvml.gpus[1].processes[101] = Held(sm_percent=30)
    fake_nvml.write()
    for _ in range(3):
        look = sensor.look([job(101, gpus=(1,))])
    assert [gpu.state for gpu in look.gpus] == [GpuState.LOST, GpuState.OCCUPIED]
    assert look.gpus[0].index == "GPU-00000000"
    assert look.evidence["7"].rung is Rung.BUSY
    (problem,) = sensor.problems()
    assert problem.code == "GpuLost"
    assert "GPU-00000000" in problem.detail


def test_a_gpu_that_answers_nothing_but_errors_is_lost_in_the_end(
    fake_nvml: FakeNvml, sensor: LocalSensor, clock: Clock
) -> None:
    fake_nvml.faults = [Fault("Handle", gpu=1, code=UNKNOWN)]
    fake_nvml.write()
    for _ in range(20):  # however often it is asked
        assert sensor.gpus()[1].state is GpuState.UNKNOWN
    clock.now_s += nvml_module.FAILING_UNTIL_LOST_S
    assert sensor.gpus()[1].state is GpuState.LOST
    fake_nvml.has(2)
    assert sensor.gpus()[1].state is GpuState.EMPTY


def test_a_gpu_that_vanishes_is_not_forgotten(fake_nvml: FakeNvml, sensor: LocalSensor) -> None:
    sensor.gpus()
    del fake_nvml.gpus[1]
    fake_nvml.write()
    assert sensor.gpus()[1].state is GpuState.LOST


def test_a_gpu_keeps_its_number_when_the_driver_counts_anew(
    fake_nvml: FakeNvml, sensor: LocalSensor
) -> None:
    before = [gpu.index for gpu in sensor.gpus()]
    gone = fake_nvml.gpus.pop(0)
    for again in ([], [FakeGpu("GPU-new"), gone]):
        fake_nvml.gpus += again
        fake_nvml.faults = [Fault(code=DRIVER_NOT_LOADED)]
        fake_nvml.write()
        sensor.gpus()
        fake_nvml.faults = []
        fake_nvml.write()
        after = sensor.gpus()
        assert [gpu.index for gpu in after][:2] == before
        assert after[0].state is (GpuState.EMPTY if again else GpuState.LOST)
        assert after[1].state is GpuState.EMPTY
    assert [gpu.index for gpu in after] == [*before, "GPU-new"]


def test_no_utilisation_by_process_the_gpus_own_serves_who_is_alone_on_it(
    fake_nvml: FakeNvml, sensor: LocalSensor
) -> None:
    fake_nvml.faults = [Fault("ProcessUtilization", code=NOT_SUPPORTED)]
    fake_nvml.gpus[0].processes[100] = Held()
    fake_nvml.gpus[0].util_percent = 70
    fake_nvml.write()
    for _ in range(3):
        evidence = sensor.look([job(100, gpus=(0,))]).evidence["7"]
    assert evidence.rung is Rung.BUSY
    problem = sensor.problems()[0]
    assert problem.code == "UtilisationHidden"
    assert "not supported" in problem.detail


def test_no_utilisation_by_process_and_two_jobs_on_the_gpu_they_have_to_say_so(
    fake_nvml: FakeNvml, sensor: LocalSensor
) -> None:
    fake_nvml.faults = [Fault("ProcessUtilization", code=NOT_SUPPORTED)]
    fake_nvml.gpus[0].processes = {100: Held(), 200: Held()}
    fake_nvml.gpus[0].util_percent = 70
    fake_nvml.write()
    for _ in range(5):
        evidence = sensor.look([job(100, gpus=(0,))]).evidence["7"]
    assert evidence.rung is Rung.CONTEXT
    assert not evidence.complete
    assert "utilisation by process is not supported by this GPU" in evidence.detail


def test_mig_hides_all_utilisation(fake_nvml: FakeNvml, sensor: LocalSensor) -> None:
    fake_nvml.gpus[0].mig = True
    fake_nvml.faults = [
        Fault(call, gpu=0, code=NOT_SUPPORTED)
        for call in ("ProcessUtilization", "UtilizationRates")
    ]
    fake_nvml.gpus[0].processes[100] = Held()
    fake_nvml.write()
    for _ in range(5):
        evidence = sensor.look([job(100, gpus=(0,))]).evidence["7"]
    assert (evidence.rung, evidence.complete) == (Rung.CONTEXT, False)
    assert "lazer working" in evidence.detail


def test_processes_that_may_not_be_listed_leave_memory(
    fake_nvml: FakeNvml, sensor: LocalSensor
) -> None:
    fake_nvml.faults = [Fault("ComputeRunningProcesses", code=NO_PERMISSION)]
    fake_nvml.gpus[1].used_bytes = GIB
    fake_nvml.write()
    assert [gpu.state for gpu in sensor.gpus()] == [GpuState.EMPTY, GpuState.OCCUPIED]
    assert {problem.code for problem in sensor.problems()} == {"ProcessesHidden"}


def test_silence_about_processes_on_a_busy_gpu_is_not_believed_for_ever(
    fake_nvml: FakeNvml, sensor: LocalSensor
) -> None:
    fake_nvml.gpus[0].processes[100] = Held()
    fake_nvml.gpus[0].util_percent = 90
    fake_nvml.write()
    rungs = [
        sensor.look([job(100, gpus=(0,))]).evidence["7"].rung
        for _ in range(nvml_module.CONTRADICTIONS_UNTIL_BLIND + 2)
    ]
    assert rungs[0] is Rung.CONTEXT
    assert rungs[-1] is Rung.BUSY


@pytest.mark.trio
async def test_a_slow_nvml_stalls_neither_the_loop_nor_itself_twice(
    fake_nvml: FakeNvml, sensor: LocalSensor
) -> None:
    await trio.to_thread.run_sync(sensor.gpus)
    fake_nvml.faults = [Fault("MemoryInfo", gpu=0, ms=2500)]
    fake_nvml.write()
    longest_s, looks = 0.0, []

    async def look() -> None:
        looks.append(await trio.to_thread.run_sync(sensor.look, [job(100)]))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        before_s = trio.current_time()
        while not looks:
            await trio.sleep(0.005)
            longest_s, before_s = (
                max(longest_s, trio.current_time() - before_s),
                trio.current_time(),
            )
    assert longest_s < LIMIT_S
    assert {gpu.state for gpu in looks[0].gpus} == {GpuState.UNKNOWN}
    assert looks[0].gpus[0].index == "GPU-00000000"
    began_s = trio.current_time()
    await trio.to_thread.run_sync(sensor.gpus)  # the late call is still in there: nobody goes in
    assert trio.current_time() - began_s < LIMIT_S
    assert "NvmlSlow" in {problem.code for problem in sensor.problems()}
    fake_nvml.faults = []
    fake_nvml.write()
    states: set[GpuState] = set()
    with trio.fail_after(20):  # when the late call has come back, on a machine that may be busy
        while states != {GpuState.EMPTY}:
            await trio.sleep(0.2)
            states = {gpu.state for gpu in await trio.to_thread.run_sync(sensor.gpus)}


def test_a_silent_moment_is_no_sample_of_idleness(fake_nvml: FakeNvml, sensor: LocalSensor) -> None:
    fake_nvml.gpus[0].processes[100] = Held(sm_percent=50)
    fake_nvml.write()
    for broken in (False, False, True, True, True, True, False):
        fake_nvml.faults = [Fault("MemoryInfo", gpu=0, code=UNKNOWN)] if broken else []
        fake_nvml.write()
        evidence = sensor.look([job(100, gpus=(0,))]).evidence["7"]
    assert evidence.rung is Rung.BUSY


def test_the_driver_goes_and_comes_back(fake_nvml: FakeNvml, sensor: LocalSensor) -> None:
    sensor.gpus()
    fake_nvml.faults = [Fault(code=DRIVER_NOT_LOADED)]
    fake_nvml.write()
    assert [gpu.state for gpu in sensor.gpus()] == [GpuState.UNKNOWN] * 2
    assert sensor.problems()[0].detail == "the NVIDIA driver is not loaded"
    fake_nvml.has(2)
    assert {gpu.state for gpu in sensor.gpus()} == {GpuState.EMPTY}


ASK = """
from lazerd.sensor.nvml import Nvml
from lazerd.sensor.errors import NvmlUnavailable
try:
    Nvml().count()
except NvmlUnavailable as error:
    print(error)
"""


@pytest.mark.usefixtures("fake_nvml")
def test_a_library_that_does_not_load_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library\n")
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env={"LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout.startswith("libnvidia-ml.so.1 is not there or does not load")
    assert done.stdout.count("\n") == 1


@pytest.mark.usefixtures("fake_nvml")
def test_a_missing_package_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("raise ModuleNotFoundError('pynvml')\n")
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout == "the Python package nvidia-ml-py is not installed\n"


def test_another_process_sees_the_same_fake(fake_nvml: FakeNvml) -> None:
    fake_nvml.has(5)
    program = "from lazerd.sensor.nvml import Nvml; print(Nvml().count())"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=fake_nvml.environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout == "5\n"


def test_a_clock_that_is_set_back_hides_no_work(fake_nvml: FakeNvml) -> None:
    clock_s = [3 * 3600]
    nvml = Nvml(lambda: clock_s[0] * 1_000_000)
    fake_nvml.gpus[0].processes[100] = Held(sm_percent=40, at_us=3 * 3600_000_000 + 1)
    fake_nvml.write()
    assert nvml.read(0).processes[0].sm_percent == 40
    clock_s[0] = 3600
    fake_nvml.gpus[0].processes[100].at_us = 3600_000_000 + 5
    fake_nvml.write()
    assert nvml.read(0).processes[0].sm_percent == 40
    assert nvml.read(0).processes[0].sm_percent == 0


def test_no_gpu_at_all(fake_nvml: FakeNvml) -> None:
    fake_nvml.faults = [Fault("Init", code=DRIVER_NOT_LOADED)]
    fake_nvml.write()
    reading = Watch(Nvml(), lambda pid: "").read()
    assert reading == Reading((), "the NVIDIA driver is not loaded")
    with pytest.raises(NvmlUnavailable):
        Nvml().read(0)


def test_a_process_that_is_stuck_in_the_kernel_still_holds_its_gpu(fake_nvml: FakeNvml) -> None:
    def stuck(pid: int) -> str:
        time.sleep(1.0)
        return "late"

    fake_nvml.gpus[0].processes = {100: Held(), 101: Held()}
    fake_nvml.write()
    gpu = Watch(Nvml(), stuck, proc_limit_s=0.1).read().gpus[0]
    assert gpu.health is Health.OK
    assert [process.job_id for process in gpu.processes] == [None, None]
