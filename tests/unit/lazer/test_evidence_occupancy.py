"""Is a GPU empty? Whose is it? What did it do for a job?"""

from __future__ import annotations

import pytest

from lazerd.backend.protocol import GpuState
from lazerd.sensor.evidence import Use
from lazerd.sensor.occupancy import is_whole, jobs_in, state_of, uses_of
from lazerd.sensor.reading import GpuReading, Health, Process, Reading

MIB = 1 << 20


@pytest.mark.parametrize(
    ("gpu", "state", "says"),
    [
        (GpuReading(0, used_bytes=3 * MIB), GpuState.EMPTY, ""),
        (GpuReading(0), GpuState.EMPTY, ""),
        (GpuReading(0, processes=(Process(7, "3"),)), GpuState.OCCUPIED, "held by job 3"),
        (GpuReading(0, processes=(Process(7),)), GpuState.OCCUPIED, "pid 7, which is of no job"),
        (GpuReading(0, used_bytes=900 * MIB), GpuState.OCCUPIED, "no process can be seen"),
        (GpuReading(0, used_bytes=200 * MIB, mig=True), GpuState.EMPTY, ""),
        (GpuReading(0, unlisted="listing is not permitted"), GpuState.UNKNOWN, "not permitted"),
        (GpuReading(0, unlisted="no list", used_bytes=0), GpuState.EMPTY, "its memory is free"),
        (GpuReading(0, health=Health.LOST, detail="gone"), GpuState.LOST, "gone"),
        (GpuReading(0, health=Health.SILENT, detail="slow"), GpuState.UNKNOWN, "slow"),
        (GpuReading(0, health=Health.FAILING, detail="bad"), GpuState.UNKNOWN, "bad"),
    ],
)
def test_states(gpu: GpuReading, state: GpuState, says: str) -> None:
    found, detail = state_of(gpu)
    assert found is state
    assert says in detail


def _uses(*gpus: GpuReading) -> tuple[Use, ...]:
    return uses_of(Reading(gpus), lambda process: process.job_id == "3")


def test_the_busiest_of_a_jobs_processes_counts() -> None:
    gpu = GpuReading(0, "G", processes=(Process(1, "3", sm_percent=0), Process(2, "3", None, 40)))
    assert _uses(gpu) == (Use("G", 40),)


def test_others_work_does_not_count() -> None:
    gpu = GpuReading(0, "G", processes=(Process(1, "3", sm_percent=0), Process(2, "4", None, 90)))
    assert _uses(gpu) == (Use("G", 0),)


def test_a_blind_gpu_that_is_a_jobs_alone_goes_by_the_whole_gpu() -> None:
    gpu = GpuReading(0, "G", processes=(Process(1, "3"),), blind="not supported", busy_percent=55)
    assert _uses(gpu) == (Use("G", 55),)


def test_a_blind_gpu_that_is_shared_is_not_known() -> None:
    both = (Process(1, "3"), Process(2))
    (use,) = _uses(GpuReading(4, "G", processes=both, blind="not supported", busy_percent=55))
    assert use.busy_percent is None
    assert use.why == "GPU 4: not supported"


def test_a_gpu_without_the_job_is_none_of_its() -> None:
    assert _uses(GpuReading(0, "G", processes=(Process(2, "4", None, 90),))) == ()


def test_jobs_in_order_and_once() -> None:
    gpus = (
        GpuReading(0, processes=(Process(1, "9"), Process(2))),
        GpuReading(1, processes=(Process(3, "1"), Process(4, "9"))),
    )
    assert jobs_in(Reading(gpus)) == ("9", "1")


def test_a_lost_gpu_does_not_spoil_the_sample_of_the_others() -> None:
    assert is_whole(Reading((GpuReading(0), GpuReading(1, health=Health.LOST))))
    assert not is_whole(Reading((GpuReading(0), GpuReading(1, health=Health.SILENT))))
    assert not is_whole(Reading())
