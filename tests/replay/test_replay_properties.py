"""Whatever the trace: no GPU-second is lost or made, and every job ends."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from lazerd.engine import Engine
from lazerd.model.cluster import Cluster
from lazerd.model.job import JobSpec
from lazerd.policy.names import Information, policy_named
from tests.replay.reference import Shortest
from tools.replay.driver import Decider, Driver, Task
from tools.replay.series import held_gpus
from tools.replay.spans import Outcome, Span

GPUS = 8
POLICIES = ("fifo", "sjf", "srtf/eager", "srsf/exempt:50", "srsf/nosetup", "lazer")


@st.composite
def traces(draw: st.DrawFn) -> list[Task]:
    """A few jobs that fit on the cluster, in order of submission."""
    job = st.tuples(
        st.integers(0, 300), st.integers(1, 600), st.integers(1, GPUS), st.integers(0, 90)
    )
    drawn = sorted(draw(st.lists(job, min_size=1, max_size=12)))
    return [
        Task(_spec(number, float(at), float(work), gpus, float(setup)), at, work, setup)
        for number, (at, work, gpus, setup) in enumerate(drawn)
    ]


def _spec(number: int, at_s: float, work_s: float, gpus: int, setup_s: float) -> JobSpec:
    return JobSpec(str(number), gpus, at_s, estimate_s=work_s, setup_s=setup_s)


@given(traces(), st.sampled_from([None, 40, 200]), st.sampled_from([0, 15]), st.booleans())
def test_accounts_add_up(
    tasks: list[Task], checkpoint_s: int | None, grace_s: int, eager: bool
) -> None:
    check(tasks, Shortest(GPUS, eager=eager), checkpoint_s, grace_s)


@settings(deadline=None, max_examples=60)
@given(traces(), st.sampled_from([None, 40]), st.sampled_from(POLICIES))
def test_accounts_add_up_with_the_engine(
    tasks: list[Task], checkpoint_s: int | None, policy: str
) -> None:
    engine = Engine(Cluster.pool(GPUS), policy_named(policy, Information.GIVEN))
    check(tasks, engine, checkpoint_s, grace_s=0)


def check(tasks: list[Task], engine: Decider, checkpoint_s: int | None, grace_s: int) -> None:
    """Run it, and hold what came out against what went in."""
    driver = Driver(engine, tasks, GPUS, checkpoint_s=checkpoint_s, grace_s=grace_s)
    outcome = driver.run()
    assert outcome.gpu_seconds().executed == sum(t.duration_s * t.spec.gpus for t in tasks)
    if checkpoint_s is None:
        assert outcome.gpu_seconds().lost == 0
    by_job = defaultdict(list)
    for span in outcome.spans:
        by_job[span.job].append(span)
    for number, task in enumerate(tasks):
        _check_job(task, by_job[number], outcome.finished_s[number])
    _check_room(outcome)


def _check_job(task: Task, spans: list[Span], finished_s: int) -> None:
    """Its placements follow each other, only the last ends by itself, and the work is done."""
    ends = [task.submit_s, *(span.released_s for span in spans)]
    assert all(end <= span.placed_s for end, span in zip(ends, spans, strict=False))
    assert [span.preempted for span in spans] == [True] * (len(spans) - 1) + [False]
    assert spans[-1].released_s == finished_s
    assert sum(span.kept_s for span in spans) == task.duration_s


def _check_room(outcome: Outcome) -> None:
    end_s = max(outcome.finished_s)
    assert max(held_gpus(outcome.spans, end_s, end_s)) <= GPUS + 1e-6
    assert all(waiting_s >= 0 for waiting_s in outcome.waiting_s())
