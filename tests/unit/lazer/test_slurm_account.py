"""What the forty jobs' account counts."""

from __future__ import annotations

import json

from tools.experiments.slurm40.account import account, doubled, runs_of
from tools.experiments.slurm40.workload import Job, workload


def log(*events: tuple[float, str, int], node: str = "n1", gpus: str = "0") -> list[str]:
    """Lines of one job: when, what, restart."""
    return [
        json.dumps({"at_s": at_s, "what": what, "rank": 0, "restart": restart, "node": node,
                    "gpus": gpus, **({"done_s": 1.0} if what == "told" else {})})
        for at_s, what, restart in events
    ]  # fmt: skip


def test_a_preemption_in_set_up_is_futile_and_one_after_is_not() -> None:
    jobs = [Job(0, 0.0, 1, 1, 1.0, 5.0, True), Job(1, 0.0, 1, 1, 1.0, 5.0, False)]
    runs = {
        0: runs_of(log((1, "setup", 0), (2, "told", 0), (5, "setup", 1), (6, "work", 1),
                       (9, "done", 1))),
        1: runs_of(log((2, "setup", 0), (3, "work", 0), (4, "step", 0), (9, "setup", 1),
                       (10, "work", 1), (12, "done", 1))),
    }  # fmt: skip
    made = account("x", jobs, {0: 0.0, 1: 0.0}, runs)
    assert (made.ended, made.preemptions, made.futile, made.killed) == (2, 2, 1, 1)
    assert (made.jct_mean_s, made.high_mean_s, made.makespan_s) == (10.5, 9.0, 12.0)
    assert made.setup_gpu_s == 1 + 1 + 1 + 1


def test_a_gpu_that_two_jobs_had_at_once_is_named() -> None:
    one = runs_of(log((1, "setup", 0), (5, "done", 0), gpus="0,1"))
    other = runs_of(log((4, "setup", 0), (6, "done", 0), gpus="1,2"))
    elsewhere = runs_of(log((4, "setup", 0), (6, "done", 0), node="n2", gpus="1"))
    assert doubled({1: one, 2: other, 3: elsewhere}) == [
        "n1 GPU 1: job 2 began before job 1 had ended"
    ]
    assert doubled({1: one, 3: elsewhere}) == []


def test_the_workload_is_the_same_each_time() -> None:
    jobs = workload()
    assert jobs == workload()
    assert len(jobs) == 40 and any(job.nodes == 2 for job in jobs)
