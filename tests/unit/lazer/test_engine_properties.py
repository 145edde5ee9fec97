"""Random traces: every invariant after every event, every job ends, and a log replays alike."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from driver import Driver
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lazerd.engine import Engine
from lazerd.model.cluster import Cluster
from lazerd.model.job import JobSpec, Phase
from lazerd.policy.names import Information, policy_named

POLICIES = [
    "fifo",
    "sjf",
    "srtf/eager",
    "srsf/exempt:15",
    "srsf/nosetup",
    "srsf/lazer",
    "las/eager",
    "las/lazer",
    "gittins/eager",
    "gittins/lazer",
    "priority:srsf/lazer",
]

jobs = st.lists(
    st.tuples(
        st.integers(0, 2_000),  # submitted
        st.sampled_from([1, 1, 1, 2, 4, 8]),
        st.integers(1, 3_000),  # work
        st.integers(0, 120),  # set-up
        st.sampled_from([0.1, 1.0, 1.0, 5.0]),  # estimate, as a factor
        st.sampled_from([None, 50.0, float("inf")]),  # checkpoint
        st.booleans(),  # set-up told
        st.integers(0, 2),  # priority
    ),
    max_size=30,
)
Drawn = list[tuple[int, int, int, int, float, float | None, bool, int]]


def play(
    engine: Engine, drawn: Drawn, *, grace_s: float = 0.0, told: bool = True, check: bool = True
) -> Driver:
    driver = Driver(engine, grace_s, Engine.validate if check else None)
    for number, (at_s, gpus, work_s, setup_s, factor, checkpoint_s, known, priority) in enumerate(
        sorted(drawn, key=lambda job: job[0])
    ):
        spec = JobSpec(
            str(number),
            gpus,
            at_s,
            user=f"user-{number % 3}",
            priority=priority,
            estimate_s=work_s * factor if told else None,
            setup_s=setup_s if known else None,
            checkpoint_s=checkpoint_s,
        )
        driver.add(spec, work_s, setup_s)
    driver.run()
    return driver


def new_engine(policy: str, nodes: bool, information: Information = Information.GIVEN) -> Engine:
    cluster = Cluster.nodes(2, 4) if nodes else Cluster.pool(8)
    return Engine(cluster, policy_named(policy, information))


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=jobs, nodes=st.booleans(), grace_s=st.sampled_from([0.0, 7.0]))
def test_invariants_hold_and_every_job_ends(
    policy: str, drawn: Drawn, nodes: bool, grace_s: float
) -> None:
    """CASES 23, 24, 33: of `lazer` and `nosetup` no victim is in set-up; no cycle; gangs whole."""
    driver = play(new_engine(policy, nodes), drawn, grace_s=grace_s)
    for life in driver.lives.values():
        assert life.end_s is not None
        if policy.endswith(("lazer", "nosetup")):
            assert life.futile == 0


@pytest.mark.parametrize("information", list(Information))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=jobs)
def test_every_source_of_durations_serves(information: Information, drawn: Drawn) -> None:
    engine = new_engine("lazer", False, information)
    driver = play(engine, drawn, told=information is Information.GIVEN)
    assert all(life.end_s is not None for life in driver.lives.values())


@pytest.mark.parametrize("policy", ["srsf/lazer", "gittins/eager"])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=jobs)
def test_an_event_log_replays_to_the_same_state(policy: str, drawn: Drawn) -> None:
    first = play(new_engine(policy, False), drawn)
    again = new_engine(policy, False)
    for now_s, events in first.log:
        again.handle_all(events, now_s)
    assert again.state() == first.engine.state()
    assert all(job.phase is Phase.ENDED for job in again.floor.jobs.values())


def test_two_processes_with_different_hashes_decide_alike() -> None:
    here = Path(__file__).parent
    script = (
        "import random; from test_engine_properties import *\n"
        "r = random.Random(5)\n"
        "drawn = [(r.randrange(9000), r.choice([1, 2, 4]), r.randrange(1, 900), 60, 1.0, None,"
        " True, 0) for _ in range(300)]\n"
        "d = play(new_engine('srsf/lazer', False), drawn, check=False)\n"
        "print([(j, l.starts, l.preempted, l.end_s) for j, l in d.lives.items()])\n"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=here,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": f"{here}:{here.parents[2]}"},
            capture_output=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    ]
    assert told[0] == told[1]
    assert len(told[0]) > 1_000
