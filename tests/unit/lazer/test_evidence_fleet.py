"""Reports of many nodes, put together by job."""

from __future__ import annotations

import pytest

from lazerd.backend.protocol import Rung
from lazerd.sensor.fleet import Arrived, Fleet
from lazerd.sensor.reading import GpuReading, Health, Process, Reading


def gpu(index: int, job_id: str | None, sm_percent: int | None) -> GpuReading:
    return GpuReading(index, f"G{index}", processes=(Process(9, job_id, 1, sm_percent),))


def arrived(node: str, at_s: float, *gpus: GpuReading) -> Arrived:
    return Arrived(node, Reading(gpus or (GpuReading(0),)), at_s - 1.0, at_s)


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    fleet.expect("42", {"a": 1, "b": 1})
    return fleet


def test_a_gang_works_when_all_its_nodes_do(fleet: Fleet) -> None:
    ended = []
    for at_s in range(10, 16):
        ended += fleet.take(arrived("a", at_s, gpu(0, "42", 80)))
        ended += fleet.take(arrived("b", at_s, gpu(0, "42", 0 if at_s < 12 else 70)))
    assert ended == ["42"]
    assert fleet.evidence("42", 16.0).rung is Rung.BUSY


def test_other_jobs_work_is_not_its_own(fleet: Fleet) -> None:
    for at_s in range(10, 16):
        for node in "ab":
            assert fleet.take(arrived(node, at_s, gpu(0, "41", 80))) == ()
    assert fleet.evidence("42", 16.0).rung is Rung.NOTHING


def test_a_job_that_says_so(fleet: Fleet) -> None:
    fleet.say("42", "lazer working", 1.0)
    fleet.say("43", "lazer working", 1.0)
    assert fleet.evidence("42", 2.0).rung is Rung.SAID
    assert not fleet.evidence("43", 2.0).complete


def test_case_36_clear_is_what_was_seen_clear_afterwards(fleet: Fleet) -> None:
    fleet.take(arrived("a", 10.0))
    assert fleet.is_clear("42", 5.0) is None  # b has said nothing
    fleet.take(arrived("b", 10.0))
    assert fleet.is_clear("42", 5.0) is True
    assert fleet.is_clear("42", 9.5) is None  # the look may have begun before
    fleet.take(arrived("b", 20.0, gpu(0, "42", 0)))
    assert fleet.is_clear("42", 5.0) is False


@pytest.mark.parametrize(
    "unsure",
    [
        gpu(0, None, 0),
        GpuReading(0, unlisted="not permitted"),
        GpuReading(0, health=Health.SILENT),
        GpuReading(0, health=Health.FAILING),
    ],
)
def test_what_cannot_be_seen_is_not_clear(fleet: Fleet, unsure: GpuReading) -> None:
    fleet.take(arrived("a", 10.0))
    fleet.take(arrived("b", 10.0, unsure))
    assert fleet.is_clear("42", 5.0) is None


def test_a_lost_gpu_is_told_and_keeps_nobody(fleet: Fleet) -> None:
    lost = GpuReading(0, "G0", health=Health.LOST, detail="GPU is lost")
    fleet.take(arrived("a", 10.0, lost, GpuReading(1)))
    fleet.take(arrived("b", 10.0))
    assert fleet.lost() == {"a": (lost,)}
    assert fleet.is_clear("42", 5.0) is True


def test_silent_nodes(fleet: Fleet) -> None:
    fleet.take(arrived("a", 10.0))
    fleet.take(arrived("b", 100.0))
    assert fleet.silent(101.0) == {"a": 91.0}
    assert fleet.reading("a") is not None
    fleet.forget("42")
    assert fleet.is_clear("42", 0.0) is None
