"""The local backend with real processes: numbers in brackets are those of the cases."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from lazerd.backend.protocol import Began, Ended, Gone, Known, NodeUp, Stuck
from tests.loop.lazerd_stage import FakeSensor, stage

WAITS = "import time; print('up', flush=True); time.sleep(60)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('up', flush=True); time.sleep(60)"
)


def open_to_all(path: Path) -> None:
    """A directory below pytest's that another user may use."""
    path.chmod(0o777)
    for parent in path.parents:
        if parent.stat().st_uid == os.geteuid() and "pytest-" in str(parent):
            parent.chmod(0o755)


@pytest.fixture(params=[True, False], ids=["cgroup", "subreaper"])
def cgroups(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.mark.trio
async def test_a_job_runs_with_its_gpus_and_its_exit_code_is_known(tmp_path: Path) -> None:
    async with stage(tmp_path) as s:
        await s.start("0", "sleep", "30", gpus=1)
        await s.listener.kind(Began, "0")
        await s.start(
            "1", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES $LAZER_JOB_ID; pwd; exit 7", gpus=2
        )
        ended = await s.listener.kind(Ended, "1")
        assert ended == Ended("1", 7)
        assert s.output("1") == f"1,2 1\n{tmp_path}\n"


@pytest.mark.trio
async def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    async with stage(tmp_path) as s:
        await s.start("1", "no-such-command")
        ended = await s.listener.kind(Ended)
        assert ended == Ended("1", 127, "no-such-command: No such file or directory")
        assert s.backend.allotment.holder == {}


@pytest.mark.trio
async def test_a_directory_that_does_not_exist(tmp_path: Path) -> None:
    async with stage(tmp_path) as s:
        launch = s.launch("1", "true")
        object.__setattr__(launch, "directory", "/no/such/place")
        await s.backend.start(launch, "1", ((0, 1),))
        ended = await s.listener.kind(Ended)
        assert ended == Ended("1", 127, "/no/such/place: No such file or directory")


@pytest.mark.trio
async def test_29_the_signal_reaches_every_process(tmp_path: Path, cgroups: bool) -> None:
    worker = (
        "import signal, sys, time\n"
        "def saved(*_):\n"
        "    print(sys.argv[1], 'saved', flush=True); sys.exit()\n"
        "signal.signal(signal.SIGTERM, saved)\n"
        "print(sys.argv[1], 'up', flush=True); time.sleep(60)\n"
    )
    (tmp_path / "worker.py").write_text(worker)
    run = f"{sys.executable} -S worker.py"
    async with stage(tmp_path, cgroups=cgroups) as s:
        # A shell that waits, a child in a session of its own, and a daemonised grandchild.
        await s.start("1", "sh", "-c", f"setsid {run} a & (setsid {run} b &) ; {run} c; wait")
        for name in "abc":
            await s.says("1", f"{name} up")
        await s.backend.preempt("1", signal.SIGTERM, 10.0)
        gone = await s.listener.kind(Gone)
        assert isinstance(gone, Gone) and not gone.killed
        for name in "abc":
            assert f"{name} saved" in s.output("1")
        assert s.left() == set()


@pytest.mark.trio
async def test_30_the_signal_is_the_jobs_own(tmp_path: Path) -> None:
    text = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "signal.signal(signal.SIGUSR1, lambda *_: (print('usr1', flush=True), sys.exit()))\n"
        "print('up', flush=True); time.sleep(60)"
    )
    async with stage(tmp_path) as s:
        await s.script("1", text)
        await s.says("1", "up")
        await s.backend.preempt("1", signal.SIGUSR1, 10.0)
        gone = await s.listener.kind(Gone)
        assert isinstance(gone, Gone) and not gone.killed
        assert "usr1" in s.output("1")


@pytest.mark.trio
async def test_what_swallows_the_signal_is_killed_after_the_grace(
    tmp_path: Path, cgroups: bool
) -> None:
    async with stage(tmp_path, cgroups=cgroups) as s:
        await s.start("1", "sh", "-c", f'{sys.executable} -S -c "{STUBBORN}" & wait; sleep 60')
        await s.says("1", "up")
        began = trio.current_time()
        await s.backend.preempt("1", signal.SIGTERM, 0.5)
        gone = await s.listener.kind(Gone)
        assert isinstance(gone, Gone) and gone.killed
        assert trio.current_time() - began >= 0.5
        assert s.left() == set()


@pytest.mark.trio
async def test_36_gone_is_reported_when_the_last_process_is(tmp_path: Path, cgroups: bool) -> None:
    async with stage(tmp_path, cgroups=cgroups) as s:
        await s.start("1", "sh", "-c", f'(setsid {sys.executable} -S -c "{STUBBORN}" &); sleep 60')
        await s.says("1", "up")
        await s.backend.preempt("1", signal.SIGTERM, 1.0)
        await trio.sleep(0.5)
        assert not any(isinstance(r, Gone) for r in s.listener.heard)
        assert s.left()
        await s.listener.kind(Gone)
        assert s.left() == set()


@pytest.mark.trio
async def test_31_gpus_are_handed_out_only_when_seen_empty(tmp_path: Path) -> None:
    sensor = FakeSensor(2)
    async with stage(tmp_path, sensor) as s:
        await s.script("1", WAITS)
        await s.says("1", "up")
        sensor.pids[0].add(4242)  # an orphan of the job that is no process of its tree
        await s.backend.preempt("1", signal.SIGTERM, 1.0)
        await trio.sleep(0.5)
        assert not any(isinstance(r, Gone) for r in s.listener.heard)
        await s.start("2", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
        await s.listener.kind(Ended, "2")
        assert s.output("2") == "GPU-1\n"
        sensor.pids[0].clear()
        await s.listener.kind(Gone, "1")


@pytest.mark.trio
async def test_31_a_strangers_gpu_is_not_offered(tmp_path: Path) -> None:
    sensor = FakeSensor(2)
    sensor.pids[0].add(4242)
    async with stage(tmp_path, sensor) as s:
        assert s.listener.heard == [] or s.listener.heard == [NodeUp(0, 1)]
        await s.start("1", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
        await s.listener.kind(Ended)
        assert s.output("1") == "GPU-1\n"
        sensor.pids[0].clear()
        await s.listener.hears(lambda report: report == NodeUp(0, 2))


@pytest.mark.trio
async def test_32_what_never_goes_away_is_stuck_and_its_gpu_drained(tmp_path: Path) -> None:
    sensor = FakeSensor(2)
    async with stage(tmp_path, sensor, bound_s=0.5) as s:
        await s.script("1", WAITS)
        await s.says("1", "up")
        sensor.pids[0].add(4242)
        await s.backend.preempt("1", signal.SIGTERM, 0.2)
        stuck = await s.listener.kind(Stuck)
        assert stuck == Stuck("1", "GPU 0 is held by pid [4242]")
        assert s.backend.allotment.offered == 1
        assert [problem.code for problem in s.backend.problems()] == ["GpuStuck"]
        sensor.pids[0].clear()
        await s.listener.kind(Gone)
        assert s.listener.together[-1] == (Gone("1", 143, False), NodeUp(0, 2))


@pytest.mark.trio
async def test_a_lost_gpu_is_taken_off_when_its_job_is_gone(tmp_path: Path) -> None:
    sensor = FakeSensor(2)
    async with stage(tmp_path, sensor) as s:
        await s.script("1", "import time; print('up', flush=True); time.sleep(1)")
        await s.says("1", "up")
        sensor.lost.add(0)
        await s.listener.kind(Ended)
        assert s.listener.together[-1] == (Ended("1", 0), NodeUp(0, 1))


@pytest.mark.trio
async def test_a_job_outlives_its_daemon_and_is_found_again(tmp_path: Path) -> None:
    known = None
    async with stage(tmp_path) as first:
        first.keep = True  # type: ignore[attr-defined]
        await first.script("1", WAITS, gpus=2)
        await first.says("1", "up")
        launch = first.launch("1", "unused", gpus=2)
        known = Known("1", launch, ((0, 2),))
    async with stage(tmp_path, adopt=(known,)) as second:
        await second.listener.kind(Began)
        assert second.backend.allotment.held_by("1") == (0, 1)
        await second.backend.preempt("1", signal.SIGTERM, 5.0)
        gone = await second.listener.kind(Gone)
        assert gone == Gone("1", 143)


@pytest.mark.trio
async def test_the_exit_code_of_a_job_that_ended_meanwhile_is_known(tmp_path: Path) -> None:
    async with stage(tmp_path) as first:
        first.keep = True  # type: ignore[attr-defined]
        await first.script("1", "import sys, time; time.sleep(0.5); sys.exit(5)")
        await first.listener.kind(Began)
    await trio.sleep(1.0)
    known = Known("1", first.launch("1", "unused"), ((0, 1),))
    async with stage(tmp_path, adopt=(known,)) as second:
        assert await second.listener.kind(Ended) == Ended("1", 5)


@pytest.mark.trio
async def test_a_start_that_never_came_is_made_up_for(tmp_path: Path) -> None:
    async with stage(tmp_path) as first:
        launch = first.launch("1", "sh", "-c", "echo here")
    async with stage(tmp_path, adopt=(Known("1", launch, ((0, 1),)),)) as second:
        assert await second.listener.kind(Ended) == Ended("1", 0)
        assert second.output("1") == "here\n"


@pytest.mark.trio
async def test_a_job_that_was_told_to_go_is_not_told_again(tmp_path: Path) -> None:
    text = (
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('told', flush=True))\n"
        "print('up', flush=True)\n"
        "for _ in range(100): time.sleep(0.1)"
    )
    async with stage(tmp_path) as first:
        first.keep = True  # type: ignore[attr-defined]
        await first.script("1", text)
        await first.says("1", "up")
        await first.backend.preempt("1", signal.SIGTERM, 2.0)
        await first.says("1", "told")
    known = Known("1", first.launch("1", "unused"), ((0, 1),), leaving=True, grace_s=2.0)
    async with stage(tmp_path, adopt=(known,)) as second:
        gone = await second.listener.kind(Gone)
        assert isinstance(gone, Gone) and gone.killed
        assert second.output("1").count("told") == 1


@pytest.mark.trio
async def test_without_its_supervisor_a_job_is_still_found_whole(tmp_path: Path) -> None:
    async with stage(tmp_path, cgroups=False) as s:
        await s.start("1", "sh", "-c", f'setsid {sys.executable} -S -c "{WAITS}" & wait')
        await s.says("1", "up")
        job = s.backend._jobs["1"]
        assert job.tree is not None
        os.kill(job.tree.run.supervisor.pid, signal.SIGKILL)
        await s.backend.preempt("1", signal.SIGTERM, 5.0)
        await s.listener.kind(Gone)
        assert s.left() == set()


@pytest.mark.trio
async def test_a_stranger_with_a_job_that_runs_keeps_its_gpus(tmp_path: Path) -> None:
    async with stage(tmp_path) as first:
        first.keep = True  # type: ignore[attr-defined]
        await first.script("1", WAITS, gpus=2)
        await first.says("1", "up")
    async with stage(tmp_path) as second:
        assert second.backend.allotment.offered == 2
        for pid in second.left():
            os.kill(pid, signal.SIGTERM)
        await second.listener.hears(lambda report: report == NodeUp(0, 4))


@pytest.mark.trio
@pytest.mark.root
async def test_as_root_a_job_runs_as_its_user(tmp_path: Path) -> None:
    open_to_all(tmp_path)
    async with stage(tmp_path) as s:
        await s.start("1", "sh", "-c", "id -u; id -g", uid=65534, gid=65534, groups=())
        await s.listener.kind(Ended)
        assert s.output("1") == "65534\n65534\n"
        assert (tmp_path / "1.out").stat().st_uid == 65534


def test_a_supervisor_costs_little(tmp_path: Path) -> None:
    """It is there once for each job."""
    from lazerd.backend.launching import SUPERVISOR

    read = f"open({str(SUPERVISOR)!r}).read().split('if __name')[0]"
    code = f"import sys; sys.argv = ['x']; exec({read}); print(len(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-s", "-c", code], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 90
