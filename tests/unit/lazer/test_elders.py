"""Who has waited too long goes first, and the order still holds for all others."""

from __future__ import annotations

from lazerd.engine import Engine
from lazerd.model.cluster import Cluster
from lazerd.model.events import Submitted, Wakeup
from lazerd.model.job import Job, JobSpec, Phase
from lazerd.policy.names import policy_named
from lazerd.policy.patience import Elders, patience_s


def waiting(number: int, gpus: int) -> Job:
    job = Job(JobSpec(str(number), gpus, 0.0), number)
    job.estimate_s = 100.0
    return job


def test_elders_hold_a_thirty_second_of_the_gpus() -> None:
    elders, jobs = Elders(), [waiting(number, 2) for number in range(3)]
    late_s = patience_s(jobs[0])
    for job in jobs:
        elders.has_waited(job)
    admitted = [elders.admit(128, late_s) for _ in range(3)]
    assert admitted == [jobs[0], jobs[1], None], "4 of 128 GPUs"
    jobs[0].phase = Phase.ENDED
    assert elders.admit(128, late_s) is jobs[2]


def test_a_gang_larger_than_that_is_an_elder_when_there_is_no_other_and_nobody_passes_it() -> None:
    elders, small, gang, behind = Elders(), waiting(0, 1), waiting(1, 64), waiting(2, 1)
    late_s = patience_s(gang)
    for job in (small, gang, behind):
        elders.has_waited(job)
    assert elders.admit(128, late_s) is small
    assert elders.admit(128, late_s) is None
    small.phase = Phase.ENDED
    assert elders.admit(128, late_s) is gang
    assert elders.admit(128, late_s) is None


def test_who_has_started_meanwhile_or_waits_anew_is_passed() -> None:
    elders, started, anew, third = Elders(), waiting(0, 1), waiting(1, 1), waiting(2, 1)
    late_s = patience_s(third)
    for job in (started, anew, third):
        elders.has_waited(job)
    started.phase = Phase.SETUP
    anew.since_s = 1.0
    assert elders.admit(128, late_s) is third


def test_when_everybody_has_waited_a_week_the_shortest_still_go_first() -> None:
    """40 have waited far too long; one is the elder, and behind it the shortest goes first."""
    engine = Engine(Cluster.pool(64), policy_named("srsf"))
    jobs = [JobSpec(str(number), 64, 0.0, estimate_s=40_000_000.0) for number in range(40)]
    engine.handle_all([Submitted(job) for job in jobs], 0.0)
    engine.handle(Wakeup(), 3e9)
    short = JobSpec("short", 64, 3e9, estimate_s=10.0)
    engine.handle(Submitted(short), 3e9)
    line = engine.floor.line
    assert [job.spec.job_id for job in line.first_of(64, 2)] == ["1", "short"]
    assert sum(job.is_elder for job in line) == 1
