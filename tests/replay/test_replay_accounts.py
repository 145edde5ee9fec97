"""The driver's accounts, worked out by hand for three jobs on four GPUs with a set-up of 100 s."""

from __future__ import annotations

import pytest

from lazerd.model.actions import Preempt, Start
from lazerd.model.job import JobSpec
from tests.replay.reference import Shortest
from tools.replay import driver
from tools.replay.driver import Driver, EngineFault, Task
from tools.replay.measures import quantile
from tools.replay.series import held_gpus
from tools.replay.spans import GpuSeconds, Outcome, Span

GPUS, SETUP_S = 4, 100


def _task(name: str, submit_s: int, duration_s: int, gpus: int) -> Task:
    spec = JobSpec(name, gpus, float(submit_s), estimate_s=float(duration_s))
    return Task(spec, submit_s, duration_s, SETUP_S)


# A comes first and takes all GPUs. B throws A out after 250 s of work. C comes while B is in set-up
# and is shorter than B: B is thrown out, too, and that is futile.
THREE = [_task("A", 0, 1000, 4), _task("B", 350, 500, 4), _task("C", 400, 50, 2)]


def _run(checkpoint_s: int | None = None, grace_s: int = 0, eager: bool = True) -> Outcome:
    engine = Shortest(GPUS, eager=eager)
    return Driver(engine, THREE, GPUS, checkpoint_s=checkpoint_s, grace_s=grace_s).run()


def test_a_preemption_loses_nothing_without_checkpoints() -> None:
    outcome = _run()
    # A: 0-100 set-up, 100-350 work (250 s kept). B: 350-400 set-up, cut off by C.
    # C: 400-500 set-up, 500-550 work. B needs four GPUs, so it starts at 550: set-up to 650, work
    # to 1150. A again: 1150-1250 set-up, then its other 750 s to 2000.
    assert outcome.finished_s == [2000, 1150, 550]
    assert outcome.spans == [
        Span(0, 4, 0, 100, 350, 350, 0, True),
        Span(1, 4, 350, None, 400, 400, 0, True),
        Span(2, 2, 400, 500, 550, 550, 0, False),
        Span(1, 4, 550, 650, 1150, 1150, 0, False),
        Span(0, 4, 1150, 1250, 2000, 2000, 0, False),
    ]
    # Executed 4 x 1000 + 4 x 500 + 2 x 50; set-ups 4 x 100 (A) + 2 x 100 (C) + 4 x 100 (B)
    # + 4 x 100 (A); futile 4 x 50.
    assert outcome.gpu_seconds() == GpuSeconds(executed=6100, setup=1400, futile=200)
    assert outcome.gpu_seconds().used == 7700
    assert outcome.completion_s() == [2000, 800, 150]
    assert outcome.waiting_s() == [800, 150, 0]  # A from 350 to 1150, B from 400 to 550
    assert [span.futile for span in outcome.spans] == [False, True, False, False, False]
    assert [span.barren for span in outcome.spans] == [False, True, False, False, False]


def test_a_preemption_loses_the_work_since_the_last_checkpoint() -> None:
    outcome = _run(checkpoint_s=200)
    # A keeps 200 of its 250 s: its second placement works 800 s, and all ends 50 s later.
    assert outcome.finished_s == [2050, 1150, 550]
    assert outcome.spans[0] == Span(0, 4, 0, 100, 350, 350, 50, True)
    assert outcome.gpu_seconds() == GpuSeconds(executed=6100, setup=1400, futile=200, lost=200)


def test_a_preemption_before_the_first_checkpoint_is_barren() -> None:
    outcome = _run(checkpoint_s=300)
    assert outcome.finished_s == [2250, 1150, 550]  # A works its 1000 s anew
    assert [span.barren for span in outcome.spans] == [True, True, False, False, False]
    assert sum(span.futile for span in outcome.spans) == 1
    assert outcome.gpu_seconds().lost == 4 * 250


def test_grace_keeps_the_gpus() -> None:
    outcome = _run(grace_s=20)
    # A is told at 350 and gone at 370; B sets up from 370, is told at 400 and gone at 420.
    assert outcome.spans[0] == Span(0, 4, 0, 100, 350, 370, 0, True)
    assert outcome.spans[1] == Span(1, 4, 370, None, 400, 420, 0, True)
    assert outcome.gpu_seconds().leaving == 4 * 20 + 4 * 20
    assert outcome.gpu_seconds().futile == 4 * 30


def test_without_preemption() -> None:
    outcome = _run(eager=False)
    # A to 1100; C is shorter than B and goes first: 1100-1250; B 1250-1850.
    assert outcome.finished_s == [1100, 1850, 1250]
    assert not any(span.preempted for span in outcome.spans)


def test_what_happens_in_one_second_is_told_together() -> None:
    # A ends at 200 (set-up 100, work 100), when B and C come.
    tasks = [_task("A", 0, 100, 4), _task("B", 200, 10, 2), _task("C", 200, 10, 2)]
    engine = Shortest(GPUS)
    Driver(engine, tasks, GPUS).run()
    assert (200, ["Finished", "Submitted", "Submitted"]) in engine.told


def test_the_engine_is_woken_once() -> None:
    engine = Shortest(GPUS, wake_s=30.2)
    Driver(engine, [_task("A", 0, 100, 4)], GPUS).run()
    # Whole seconds, not before the time that was asked for.
    assert engine.told == [
        (0, ["Submitted"]), (31, ["Wakeup"]), (100, ["SetupEnded"]), (200, ["Finished"]),
    ]  # fmt: skip


class _Says:
    """An engine that gives fixed answers."""

    def __init__(self, *answers: object) -> None:
        self._answers = list(answers)

    def handle_all(self, events: object, now_s: float) -> list[object]:
        """The next answer."""
        return [self._answers.pop(0)] if self._answers else []


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ([Start("A", ((0, 4),)), Start("B", ((0, 4),))], "at 100 s job B was started without room"),
        ([Preempt("A", None, None)], "at 0 s job A was told to go, and is not there"),
        ([], "2 of 2 jobs have not ended"),
    ],
)
def test_an_engine_that_errs_is_found_out(answers: list[object], says: str) -> None:
    tasks = [_task("A", 0, 1000, 4), _task("B", 100, 10, 4)]
    with pytest.raises(EngineFault, match=says):
        Driver(_Says(*answers), tasks, GPUS).run()  # type: ignore[arg-type]


class _Circles:
    """An engine that starts a job, tells it to go, and starts it again, all at once."""

    def handle_all(self, events: object, now_s: float) -> list[object]:
        """Start it, and tell it to go."""
        return [Start("A", ((0, 4),)), Preempt("A", None, None)]


def test_an_engine_that_circles_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "CIRCLES", 1000)
    with pytest.raises(
        EngineFault, match="at 0 s: 1,000 instants in which no job ends, it circles"
    ):
        Driver(_Circles(), [_task("A", 0, 100, 4)], GPUS).run()  # type: ignore[arg-type]


def test_held_gpus_over_time() -> None:
    # From 0 to 350 four GPUs, from 350 to 400 none, then two to 500, in bins of 100 s.
    spans = [Span(0, 4, 0, 100, 350, 350, 0, False), Span(1, 2, 400, 450, 500, 500, 0, False)]
    assert held_gpus(spans, 500, 5) == pytest.approx([4, 4, 4, 2, 2])


def test_quantiles_lie_between_the_nearest_two() -> None:
    assert quantile([1, 2, 3, 10], 0.5) == 2.5
    assert quantile([1, 2, 3, 10], 1) == 10
    assert quantile([7], 0.99) == 7
