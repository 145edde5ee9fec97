"""The Slurm backend against a real Slurm; the numbers are those of CASES.md."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from lazerd.backend.protocol import (
    BackendBack,
    BackendLost,
    Began,
    Eligible,
    Ended,
    Gone,
    Known,
    NodeDrained,
    NodeUp,
    NotEligible,
    Running,
    Submission,
    Withdrawn,
)
from tests.slurm_cluster import SlurmCluster, slurm_cluster, why_not_here
from tests.slurm_daemon import daemon_on, until

pytestmark = [
    pytest.mark.skipif(bool(why_not_here()), reason=why_not_here() or "Slurm is here"),
    pytest.mark.root,
    pytest.mark.trio,
]

NOBODY = 65534

SAVES = """
python3 -u -c '
import signal, sys, time
def save(*_):
    time.sleep(1)
    print("saved", flush=True)
    sys.exit(3)
signal.signal(signal.SIGTERM, save)
signal.signal(signal.SIGUSR1, save)
print("works", flush=True)
while True:
    time.sleep(0.1)
'
echo "the shell saw $?"
"""
"""A batch script whose child saves when it is asked to go: what torchrun does."""


@pytest.fixture(scope="module")
def shared() -> Iterator[SlurmCluster]:
    with slurm_cluster(settings={"KillWait": "1"}) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: SlurmCluster) -> Iterator[SlurmCluster]:
    yield shared
    shared.clear()


async def test_a_job_waits_for_lazerd_starts_where_it_says_and_ends(cluster: SlurmCluster) -> None:
    job = cluster.sbatch("sleep 1; exit 7", "--job-name=one", gpus=2, user=NOBODY)
    async with daemon_on(cluster) as daemon:
        assert [(up.name, up.gpus) for up in daemon.of(NodeUp)] == [("n1", 4), ("n2", 4), ("n3", 4)]
        spec = (await daemon.sees(Submission, job)).spec
        assert (spec.gpus, spec.user, spec.name) == (2, "nobody", "one")
        await until(lambda: cluster.show(job)["Reason"] == "JobHeldAdmin")
        began = await daemon.start(job, ((1, 2),))
        assert began.where.startswith("n2 GPU ")
        assert await daemon.sees(Ended, job) == Ended(job, 7, "FAILED")


async def test_the_user_cannot_start_a_job_past_lazerd(cluster: SlurmCluster) -> None:
    job = cluster.sbatch("sleep 30", user=NOBODY)
    async with daemon_on(cluster) as daemon:
        await daemon.sees(Submission, job)
        await until(lambda: cluster.show(job)["Reason"] == "JobHeldAdmin")
        cluster.run(
            "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
            "scontrol", "release", job, check=False,
        )  # fmt: skip
        assert cluster.show(job)["Priority"] == "0"


async def test_29_27_the_signal_reaches_a_child_which_saves_and_the_job_is_in_line_again(
    cluster: SlurmCluster,
) -> None:
    job = cluster.sbatch(SAVES, gpus=4)
    async with daemon_on(cluster) as daemon:
        await daemon.start(job, ((0, 4),))
        await until(lambda: "works" in cluster.output(job))
        await daemon.backend.preempt(job, 15, 4.0)
        await daemon.sees(Gone, job)
        assert cluster.state(job) == "PENDING"
        assert "saved" in cluster.output(job)
        assert not daemon.of(Ended, job)
        # It starts again elsewhere at once, though Slurm would make it wait for two minutes.
        began = await daemon.start(job, ((2, 4),))
        assert began.where.startswith("n3")
        assert cluster.show(job)["Restarts"] == "1"


async def test_30_28_another_signal_and_a_grace_longer_than_kill_wait(
    cluster: SlurmCluster,
) -> None:
    script = SAVES.replace("time.sleep(1)", "time.sleep(3)")
    job = cluster.sbatch(script, "--comment=lazer signal=USR1 grace=20s")
    after = cluster.sbatch("sleep 30", f"--dependency=afterany:{job}")
    async with daemon_on(cluster) as daemon:
        submission = await daemon.sees(Submission, job)
        assert (submission.signal_number, submission.spec.grace_s) == (10, 20.0)
        await daemon.sees(NotEligible, after)
        await until(lambda: cluster.show(after)["AdminComment"] == "lazer:wait")
        await daemon.start(job, ((0, 1),))
        await until(lambda: "works" in cluster.output(job))
        await daemon.backend.preempt(job, 10, 20.0)
        assert not (await daemon.sees(Gone, job)).killed
        assert "saved" in cluster.output(job), "the grace is longer than KillWait, 1 s"
        assert cluster.state(job) == "PENDING"
        # What waits for it goes on waiting, though for a moment the job had ended.
        await until(lambda: f"afterany:{job}" in cluster.show(after)["Dependency"])
        await trio.sleep(1)
        assert not daemon.of(Eligible, after)


async def test_29_tasks_of_srun_save_and_srun_itself_does_not_cut_them_short(
    cluster: SlurmCluster,
) -> None:
    program = SAVES.split("'")[1]
    job = cluster.sbatch(f"cat > save.py <<'X'{program}X\nsrun --ntasks=1 python3 -u save.py")
    async with daemon_on(cluster) as daemon:
        await daemon.start(job, ((1, 1),))
        await until(lambda: "works" in cluster.output(job))
        await daemon.backend.preempt(job, 15, 10.0)
        assert not (await daemon.sees(Gone, job)).killed
        assert "saved" in cluster.output(job)


async def test_32_36_what_ignores_the_signal_is_killed_and_gone_only_when_nothing_is_left(
    cluster: SlurmCluster,
) -> None:
    victim = cluster.sbatch("trap '' TERM; echo works; while true; do sleep 1; done", gpus=4)
    async with daemon_on(cluster) as daemon:
        await daemon.start(victim, ((0, 4),))
        await until(lambda: "works" in cluster.output(victim))
        asked_s = time.monotonic()
        await daemon.backend.preempt(victim, 15, 2.0)
        await until(lambda: cluster.state(victim) == "COMPLETING")
        assert time.monotonic() - asked_s >= 2.0
        assert not daemon.of(Gone, victim)
        assert cluster.leftovers(of_jobs=True) != []
        assert (await daemon.sees(Gone, victim)).killed
        assert cluster.leftovers(of_jobs=True) == []


async def test_a_cancelled_job_is_gone_and_one_in_line_withdrawn(cluster: SlurmCluster) -> None:
    running, waiting, other = (cluster.sbatch("sleep 60") for _ in range(3))
    async with daemon_on(cluster) as daemon:
        await daemon.start(running, ((0, 1),))
        await daemon.backend.kill(running)
        await daemon.sees(Gone, running)
        await daemon.backend.forget(running)
        cluster.run("scancel", waiting)
        await daemon.sees(Withdrawn, waiting)
        await daemon.backend.withdraw(other)
        await until(lambda: cluster.state(other) == "CANCELLED")
        assert [cluster.state(job) for job in (running, waiting)] == ["CANCELLED"] * 2
        assert not daemon.of(Withdrawn, other)


async def test_an_array_keeps_to_its_limit_and_its_tasks_go_one_by_one(
    cluster: SlurmCluster,
) -> None:
    array = cluster.sbatch("sleep 30", "--array=0-3%2")
    tasks = [f"{array}_{number}" for number in range(4)]
    async with daemon_on(cluster) as daemon:
        for task in tasks[2:]:
            assert (await daemon.sees(NotEligible, task)).why == "JobArrayTaskLimit"
        assert not daemon.of(NotEligible, tasks[0])
        await daemon.start(tasks[1], ((1, 1),))
        await daemon.start(tasks[0], ((0, 1),))
        assert [cluster.squeue()[task] for task in tasks[:2]] == [("RUNNING", "n1"),
                                                                  ("RUNNING", "n2")]  # fmt: skip
        assert {cluster.squeue()[task][0] for task in tasks[2:]} == {"PENDING"}
        await daemon.backend.preempt(tasks[0], 15, 10.0)
        assert not (await daemon.sees(Gone, tasks[0])).killed
        cluster.run("scancel", tasks[0])
        await daemon.sees(Withdrawn, tasks[0])
        await daemon.sees(Eligible, tasks[2])
        await daemon.start(tasks[2], ((2, 1),))


async def test_a_job_of_several_nodes_starts_whole_on_the_nodes_that_were_chosen(
    cluster: SlurmCluster,
) -> None:
    job = cluster.sbatch("srun --ntasks=2 bash -c 'echo on $SLURMD_NODENAME; sleep 60'",
                         "--nodes=2", "--ntasks-per-node=1", gpus=4)  # fmt: skip
    async with daemon_on(cluster) as daemon:
        assert (await daemon.sees(Submission, job)).spec.gpus == 8
        await daemon.start(job, ((0, 4), (2, 4)))
        assert cluster.squeue()[job] == ("RUNNING", "n[1,3]")
        await until(lambda: cluster.output(job).count("on n") == 2)
        await daemon.backend.preempt(job, 15, 4.0)
        await daemon.sees(Gone, job)
        assert cluster.leftovers(of_jobs=True) == []


async def test_a_job_with_a_dependency_is_in_line_but_may_not_start(cluster: SlurmCluster) -> None:
    first = cluster.sbatch("sleep 1")
    second = cluster.sbatch("sleep 30", f"--dependency=afterok:{first}")
    async with daemon_on(cluster) as daemon:
        assert "afterok" in (await daemon.sees(NotEligible, second)).why
        await daemon.start(first, ((0, 1),))
        await daemon.sees(Ended, first)
        await daemon.sees(Eligible, second)
        await until(lambda: cluster.show(second)["Reason"] == "JobHeldAdmin")
        await daemon.start(second, ((0, 1),))


async def test_holds_of_users_and_begin_times_are_respected(cluster: SlurmCluster) -> None:
    held = cluster.sbatch("sleep 30", "--hold", user=NOBODY)
    later = cluster.sbatch("sleep 30", "--begin=now+1hour")
    async with daemon_on(cluster) as daemon:
        assert (await daemon.sees(NotEligible, held)).why == "JobHeldUser"
        assert (await daemon.sees(NotEligible, later)).why == "BeginTime"
        cluster.run("scontrol", "update", f"JobId={later}", "StartTime=now")
        await daemon.sees(Eligible, later)
        cluster.run("scontrol", "uhold", later)
        await daemon.sees(NotEligible, later, times=2)


async def test_a_drained_node_takes_no_job_until_it_is_resumed(cluster: SlurmCluster) -> None:
    async with daemon_on(cluster) as daemon:
        cluster.run("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=fan")
        assert "fan" in (await daemon.sees(NodeDrained)).why
        cluster.run("scontrol", "update", "NodeName=n2", "State=RESUME")
        assert (await daemon.sees(NodeUp, times=4)).node == 1


async def test_a_reservation_closes_its_nodes_and_its_jobs_are_left_to_slurm(
    cluster: SlurmCluster,
) -> None:
    async with daemon_on(cluster) as daemon:
        cluster.run(
            "scontrol", "create", "reservation", "ReservationName=r1", "StartTime=now",
            "Duration=60", "Users=root", "Nodes=n3", "Flags=IGNORE_JOBS",
        )  # fmt: skip
        try:
            assert (await daemon.sees(NodeDrained)).node == 2
            job = cluster.sbatch("sleep 30", "--reservation=r1")
            await until(lambda: cluster.squeue()[job] == ("RUNNING", "n3"))
            assert not daemon.of(Submission, job)
            await until(lambda: job in daemon.backend.facts()["not_steered"])
            assert daemon.backend.facts()["not_steered"][job] == "it runs in the reservation r1"
        finally:
            cluster.run("scancel", job)
            await until(lambda: cluster.state(job) == "CANCELLED")
            cluster.run("scontrol", "delete", "ReservationName=r1")
        await daemon.sees(NodeUp, times=4)


async def test_what_lazerd_does_not_steer_takes_its_gpus_off_the_offer(
    cluster: SlurmCluster,
) -> None:
    async with daemon_on(cluster) as daemon:
        other = cluster.sbatch("sleep 60", "--partition=other", "--nodelist=n1", gpus=3)
        up = await daemon.sees(NodeUp, times=4)
        assert (up.node, up.gpus) == (0, 1)
        cluster.run("scancel", other)
        assert (await daemon.sees(NodeUp, times=5)).gpus == 4


async def test_35_slurmctld_killed_is_unreachable_not_failed(cluster: SlurmCluster) -> None:
    working, waiting = cluster.sbatch("sleep 60"), cluster.sbatch("sleep 60")
    async with daemon_on(cluster, command_s=1.0) as daemon:
        await daemon.start(working, ((0, 1),))
        await daemon.sees(Submission, waiting)
        await trio.sleep(5.5)  # slurmctld saves its state every five seconds
        cluster.kill_controller()
        await daemon.sees(BackendLost)
        assert [problem.code for problem in daemon.backend.problems()] == ["SlurmUnreachable"]
        before = len(daemon.reports)
        await daemon.backend.start(None, waiting, ((1, 1),))
        await trio.sleep(1)
        assert len(daemon.reports) == before, "nothing is known"
        cluster.start_controller()
        await daemon.sees(BackendBack)
        await daemon.sees(Began, waiting)
        assert not daemon.of(Ended) and not daemon.of(Gone) and not daemon.of(Withdrawn)
        assert {cluster.state(job) for job in (working, waiting)} == {"RUNNING"}


async def test_a_job_that_somebody_else_requeues_is_in_line_anew_and_does_not_start_by_itself(
    cluster: SlurmCluster,
) -> None:
    job = cluster.sbatch("sleep 60")
    async with daemon_on(cluster) as daemon:
        await daemon.start(job, ((0, 1),))
        cluster.run("scontrol", "requeue", job)
        await daemon.sees(Ended, job)
        await daemon.sees(Submission, job, times=2)
        first, second = daemon.of(Submission, job)
        assert first.spec.submitted_s == second.spec.submitted_s, "it keeps its place"
        await until(lambda: cluster.show(job)["Reason"] == "JobHeldAdmin")


async def test_a_job_that_somebody_releases_while_lazerd_is_away_is_a_guest(
    cluster: SlurmCluster,
) -> None:
    job = cluster.sbatch("sleep 60", gpus=2)
    cluster.run("scontrol", "release", job)
    await until(lambda: cluster.state(job) == "RUNNING")
    async with daemon_on(cluster, [Known(job, None)]) as daemon:
        assert (await daemon.sees(Running, job)).placement == ((0, 2),)
        assert daemon.of(Withdrawn, job)
        await daemon.backend.withdraw(job)  # as the daemon does for whoever is withdrawn
        await trio.sleep(0.5)
        assert cluster.state(job) == "RUNNING"
        cluster.run("scancel", job)
        await daemon.sees(Ended, job)


async def test_a_restarted_daemon_finds_its_jobs(cluster: SlurmCluster, tmp_path: Path) -> None:
    scripts = ("sleep 60", "trap '' TERM; sleep 60", "sleep 60", "sleep 60")
    jobs = [cluster.sbatch(script) for script in scripts]
    async with daemon_on(cluster, state_dir=tmp_path) as daemon:
        await daemon.start(jobs[0], ((0, 1),))
        await daemon.start(jobs[1], ((1, 1),))
        await daemon.start(jobs[2], ((2, 1),))
        await daemon.backend.preempt(jobs[1], 15, 1.0)
        await until(lambda: cluster.state(jobs[1]) == "COMPLETING")
    cluster.run("scancel", "--signal=KILL", "--full", jobs[2])
    known = [
        Known(jobs[0], None, ((0, 1),), working=True),
        Known(jobs[1], None, ((1, 1),), leaving=True, grace_s=1.0),
        Known(jobs[2], None, ((2, 1),), working=True),
        Known(jobs[3], None, ((0, 1),)),
    ]
    async with daemon_on(cluster, known, state_dir=tmp_path) as daemon:
        await daemon.sees(Gone, jobs[1])
        await daemon.sees(Ended, jobs[2])
        await daemon.sees(Began, jobs[3])
        assert not daemon.of(Submission) and not daemon.of(Running)
        assert cluster.state(jobs[0]) == "RUNNING"


async def test_the_text_of_scontrol_serves_as_well_as_the_json(cluster: SlurmCluster) -> None:
    job = cluster.sbatch("sleep 60", "--job-name=a JobState=COMPLETED b", gpus=2)
    plain = cluster.sbatch(SAVES, gpus=2)
    async with daemon_on(cluster, format="text") as daemon:
        assert daemon.backend.facts()["reads"] == "text"
        began = await daemon.start(plain, ((1, 2),))
        assert began.where == "n2 GPU 0,1"
        await daemon.backend.preempt(plain, 15, 4.0)
        await daemon.sees(Gone, plain)
        assert any(job in problem.detail for problem in daemon.backend.problems())


async def test_36_no_gpu_is_ever_held_twice(cluster: SlurmCluster) -> None:
    jobs = [cluster.sbatch("sleep 1", gpus=2) for _ in range(8)]
    slots = [((node, 2),) for node in range(3) for _ in range(2)]
    seen: list[set[tuple[str, str]]] = []
    async with daemon_on(cluster) as daemon:
        for job, slot in zip(jobs, slots, strict=False):
            await daemon.sees(Submission, job)
            await daemon.backend.start(None, job, slot)
        for job in jobs[:6]:
            await daemon.sees(Began, job)
            fields = cluster.show(job)
            if fields["JobState"] == "RUNNING":
                found = re.fullmatch(r"gpu:2\(IDX:(.*)\)", fields["GRES"])
                assert found is not None
                seen.append({(fields["Nodes"], found[1])})
        for job in jobs[:6]:
            await daemon.sees(Ended, job)
    assert len(set.union(*seen)) == len(seen)
