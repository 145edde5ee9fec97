"""The daemon with a fake sensor or a fake backend: what real machines do too rarely."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import trio

from lazerd.backend.protocol import (
    BackendBack,
    BackendLost,
    Eligible,
    Ended,
    Evidence,
    Gone,
    NodeDrained,
    NodeUp,
    NotEligible,
    Rung,
    Running,
    Saved,
    Stuck,
    Submission,
    Withdrawn,
    Working,
)
from lazerd.daemon import Parts
from lazerd.errors import LazerError, WrongPhase
from lazerd.metrics import EVERY_S
from lazerd.model.job import JobSpec
from tests.loop.lazerd_inside import FakeBackend, Inside, inside
from tests.loop.lazerd_stage import FakeSensor

NOSETUP = '[policy]\nname = "srsf/nosetup"\ninformation = "given"\n'
BOUNDED = '[local]\ngone_timeout = "0.5s"\nsample = "0.1s"\n'
UP = "import time; print('up', flush=True); time.sleep(60)"
WORKS = Evidence(Rung.BUSY, "every GPU was busy")


async def working(daemon: Inside, backend: FakeBackend, gpus: int, estimate_s: float) -> str:
    job = await daemon.submit(gpus=gpus, estimate_s=estimate_s)
    await daemon.until(job, state="setup", where="paper")
    await backend.say(Working(job, WORKS))
    await daemon.until(job, state="working")
    return job


@pytest.mark.trio
async def test_31_an_orphan_keeps_the_gpu_and_nobody_gets_it(tmp_path: Path) -> None:
    sensor = FakeSensor(2)
    async with inside(tmp_path, Parts(sensor=sensor), NOSETUP + BOUNDED) as daemon:
        long = await daemon.script(UP, gpus=1, estimate_s=1000.0, grace_s=1.0)
        await daemon.says(long, "up")
        sensor.pids[0].add(4242)
        await daemon.ask("working", job=long)
        both = await daemon.submit("sh", "-c", "echo $CUDA_VISIBLE_DEVICES", gpus=2, estimate_s=1.0)
        await daemon.until(long, state="stuck")
        assert (await daemon.until(both, state="pending"))["reason"] != ""
        one = await daemon.submit("sh", "-c", "echo $CUDA_VISIBLE_DEVICES", gpus=1, estimate_s=1.0)
        await daemon.until(one, state="ended")
        assert daemon.output(one) == "GPU-1\n"
        sensor.pids[0].clear()
        await daemon.until(both, state="ended")
        assert daemon.output(both) == "GPU-0,GPU-1\n"
        await daemon.until(long, state="setup")  # it was pending again, and starts anew


@pytest.mark.trio
async def test_32_another_victim_when_one_does_not_go(tmp_path: Path) -> None:
    backend = FakeBackend(4)
    async with inside(tmp_path, Parts(backend=backend), NOSETUP) as daemon:
        first = await working(daemon, backend, 2, 2000.0)
        second = await working(daemon, backend, 2, 1000.0)
        waiting = await daemon.submit(gpus=2, estimate_s=1.0)
        await daemon.until(first, state="leaving")
        await backend.say(Stuck(first, "pid 1 in state D after SIGKILL"))
        stuck = await daemon.until(first, state="stuck")
        assert stuck["decisions"][-1]["kind"] == "Stuck"
        await daemon.until(second, state="leaving")
        await backend.goes(second)
        await daemon.until(waiting, state="setup")
        (node,) = await daemon.ask("nodes")
        assert node["gpus"] == 2
        await backend.say(Gone(first), NodeUp(0, 4))
        await daemon.until(first, state="pending")
        await daemon.until(second, state="setup")  # the shorter of the two that wait
        assert [gpus["gpus"] for gpus in await daemon.ask("nodes")] == [4]


@pytest.mark.trio
async def test_35_unreachable_is_not_failed(tmp_path: Path) -> None:
    backend = FakeBackend(4)
    async with inside(tmp_path, Parts(backend=backend), NOSETUP) as daemon:
        running = await working(daemon, backend, 4, 100.0)
        waiting = await daemon.submit(gpus=4, estimate_s=500.0)
        await backend.say(BackendLost("slurmctld does not answer"))
        await daemon.until(waiting, reason="BackendLost")
        status = await daemon.ask("status")
        assert status["problems"][0] == {
            "code": "BackendLost",
            "detail": "slurmctld does not answer",
            "action": "",
        }
        rows = await daemon.rows()
        assert (rows[running]["state"], rows[running]["preemptions"]) == ("working", 0)
        submitted = await daemon.submit(gpus=1, estimate_s=10_000.0)
        await backend.say(BackendBack())
        assert (await daemon.until(waiting, state="pending"))["reason"] != "BackendLost"
        await backend.ends(running)
        await daemon.until(waiting, state="setup")
        assert (await daemon.rows())[submitted]["state"] == "pending"
        assert ("preempt", running) not in backend.asked


@pytest.mark.trio
async def test_36_a_promise_waits_for_gone(tmp_path: Path) -> None:
    backend = FakeBackend(4)
    async with inside(tmp_path, Parts(backend=backend), NOSETUP) as daemon:
        victim = await working(daemon, backend, 4, 1000.0)
        waiting = await daemon.submit(gpus=4, estimate_s=1.0)
        await daemon.until(victim, state="leaving")
        small = await daemon.submit(gpus=1, estimate_s=0.5)
        await trio.sleep(0.3)
        rows = await daemon.rows()
        assert rows[waiting]["state"] == rows[small]["state"] == "pending"
        assert [job for what, job in backend.asked if what == "start"] == [victim]
        await backend.goes(victim)
        await daemon.until(waiting, state="setup")


@pytest.mark.trio
async def test_a_node_shrinks_only_by_what_nobody_holds(tmp_path: Path) -> None:
    backend = FakeBackend(4)
    async with inside(tmp_path, Parts(backend=backend), NOSETUP) as daemon:
        running = await working(daemon, backend, 3, 1000.0)
        await backend.say(NodeUp(0, 2))  # said as the job was being placed
        await trio.sleep(0.2)
        (node,) = await daemon.ask("nodes")
        assert (node["gpus"], node["free"]) == (2, 0)
        waiting = await daemon.submit(gpus=3, estimate_s=1.0)
        await backend.ends(running)
        assert (await daemon.until(waiting, state="pending"))["state"] == "pending"
        (node,) = await daemon.ask("nodes")
        assert (node["gpus"], node["free"]) == (2, 2)
        await backend.say(NodeUp(0, 4))
        await daemon.until(waiting, state="setup")


@pytest.mark.trio
async def test_a_drained_node_takes_no_job(tmp_path: Path) -> None:
    backend = FakeBackend(4)
    async with inside(tmp_path, Parts(backend=backend), NOSETUP) as daemon:
        await backend.say(NodeDrained(0, "maintenance"))
        await trio.sleep(0.1)
        job = await daemon.submit()
        assert (await daemon.until(job, state="pending"))["reason"]
        assert (await daemon.ask("nodes"))[0]["why"] == "maintenance"
        await backend.say(NodeUp(0, 4))
        await daemon.until(job, state="setup")


@pytest.mark.trio
async def test_jobs_that_are_submitted_elsewhere(tmp_path: Path) -> None:
    backend = FakeBackend(4)
    async with inside(tmp_path, Parts(backend=backend), NOSETUP) as daemon:
        guest = JobSpec("90", 3, 1.0, user="root")
        await backend.say(Running(guest, ((0, 3),), where="paper"))
        await trio.sleep(0.1)
        for job, gpus in (("100", 1), ("101", 2), ("102", 1)):
            await backend.say(Submission(JobSpec(job, gpus, 2.0, user="root", estimate_s=5.0)))
        await backend.say(NotEligible("102", "Dependency"))
        await daemon.until("100", state="setup")
        await daemon.until("101", state="pending")
        assert (await daemon.until("102", state="held"))["sentence"] == "Dependency"
        await backend.say(Withdrawn("101"), Eligible("102"))
        await daemon.until("101", state="ended", cancelled=True)
        assert (await daemon.ask("status"))["not_steered"] == ["90"]
        await backend.ends("90")
        await daemon.until("102", state="setup")
        assert backend.attempts["102"] == 0  # there is no launch: nothing of it was here
        with pytest.raises(WrongPhase):
            await daemon.ask("release", jobs=["102"])


@pytest.mark.trio
async def test_a_safe_checkpoint_is_known(tmp_path: Path) -> None:
    backend = FakeBackend(4)
    async with inside(tmp_path, Parts(backend=backend), NOSETUP) as daemon:
        job = await working(daemon, backend, 4, 1000.0)
        await trio.sleep(0.5)
        await backend.say(Saved(job, 0.2))
        found = await daemon.until(job, state="working")
        while found["safe_checkpoint_at"] is None:
            found = await daemon.until(job, state="working")
        assert 0.2 < found["safe_work_s"] < 5.0


@pytest.mark.trio
async def test_an_end_that_comes_with_the_signal_is_an_end(tmp_path: Path) -> None:
    backend = FakeBackend(4)
    async with inside(tmp_path, Parts(backend=backend), NOSETUP) as daemon:
        victim = await working(daemon, backend, 4, 1000.0)
        waiting = await daemon.submit(gpus=4, estimate_s=1.0)
        await daemon.until(victim, state="leaving")
        await backend.say(Ended(victim, 0))
        await daemon.until(waiting, state="setup")
        assert (await daemon.until(victim, state="ended"))["exit_code"] == 0


@pytest.mark.trio
async def test_late_reports_change_nothing(tmp_path: Path) -> None:
    backend = FakeBackend(4)
    async with inside(tmp_path, Parts(backend=backend), NOSETUP) as daemon:
        job = await working(daemon, backend, 1, 10.0)
        await backend.ends(job)
        await backend.say(Ended(job, 1), Working(job, WORKS), Gone(job), Stuck("77", "who?"))
        await trio.sleep(0.1)
        other = await daemon.submit()
        await daemon.until(other, state="setup")
        assert (await daemon.until(job, state="ended"))["exit_code"] == 0
        with pytest.raises(LazerError):
            await daemon.ask("cancel", jobs=[job])


@pytest.mark.trio
async def test_a_daemon_that_comes_back_says_what_it_knows(tmp_path: Path) -> None:
    first, second = FakeBackend(4), FakeBackend(4)
    async with inside(tmp_path, Parts(backend=first), NOSETUP) as daemon:
        victim = await working(daemon, first, 4, 1000.0)
        waiting = await daemon.submit(gpus=4, estimate_s=1.0)
        await daemon.until(victim, state="leaving")
    async with inside(tmp_path, Parts(backend=second), NOSETUP) as daemon:
        known = {job.job_id: job for job in second.adopted}
        assert known[victim].leaving and known[victim].placement == ((0, 4),)
        assert known[victim].attempt == 1 and known[victim].signal_number == signal.SIGTERM
        assert known[waiting].placement == () and not known[waiting].leaving
        await second.goes(victim)
        await daemon.until(waiting, state="setup")


@pytest.mark.trio
async def test_the_metrics_can_be_scraped(tmp_path: Path) -> None:
    import socket
    import urllib.request

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    backend = FakeBackend(4)
    text = f"metrics_port = {port}\n{NOSETUP}"
    async with inside(tmp_path, Parts(backend=backend), text) as daemon:
        victim = await working(daemon, backend, 4, 1000.0)
        waiting = await daemon.submit(gpus=4, estimate_s=1.0)
        await daemon.until(victim, state="leaving")
        await backend.goes(victim)
        await daemon.until(waiting, state="setup")
        url = f"http://127.0.0.1:{port}/metrics"

        def scrape() -> str:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return str(answer.read().decode())

        await trio.sleep(2 * EVERY_S)
        page = await trio.to_thread.run_sync(scrape)
    assert 'lazer_jobs{state="setup"} 1.0' in page
    assert 'lazer_preemptions_total{kind="for_a_job"} 1.0' in page
    assert "lazer_futile_preemptions_total 0.0" in page
    assert 'lazer_gpu_seconds_total{phase="work"}' in page
    assert 'lazer_pending_jobs{reason="' in page
