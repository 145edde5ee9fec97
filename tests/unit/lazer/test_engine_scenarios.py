"""Tiny traces with the exact times worked out. Unless said otherwise a set-up takes 10 s.

In the comments, `end` is when a running job ends, left alone; a key is what a waiting job needs,
with its set-up, times its GPUs; a value is what a running one still needs, less its restart, times
its GPUs (SRSF). The price of a preemption is half of the waiting job's work plus twice
the restart.
"""

from __future__ import annotations

import pytest
from driver import Driver, Life

from lazerd.engine import Engine
from lazerd.model.actions import Preempt, Start
from lazerd.model.cluster import Cluster
from lazerd.model.events import (
    Cancelled,
    Evicted,
    Gone,
    Held,
    NodeDrained,
    Released,
    Stuck,
    Submitted,
)
from lazerd.model.job import JobSpec, Phase
from lazerd.model.reasons import Reason
from lazerd.model.weighing import Moment, Weighing
from lazerd.policy.names import Information, policy_named

SETUP_S = 10.0


def driver(gpus: int, policy: str, grace_s: float = 0.0) -> Driver:
    engine = Engine(Cluster.pool(gpus), policy_named(policy))
    return Driver(engine, grace_s, check=Engine.validate)


def add(
    play: Driver,
    name: str,
    at_s: float,
    gpus: int,
    work_s: float,
    *,
    estimate_s: float | None = None,
    setup_s: float = SETUP_S,
    checkpoint_s: float | None = None,
    priority: int = 0,
) -> None:
    spec = JobSpec(
        name,
        gpus,
        at_s,
        priority=priority,
        estimate_s=work_s if estimate_s is None else estimate_s,
        setup_s=setup_s,
        checkpoint_s=checkpoint_s,
    )
    play.add(spec, work_s, setup_s)


def ends(lives: dict[str, Life]) -> dict[str, float | None]:
    return {name: life.end_s for name, life in lives.items()}


def test_eager_srtf_preempts_in_setup() -> None:
    play = driver(1, "srtf/eager")
    add(play, "long", 0, 1, 1_000, setup_s=100)
    add(play, "short", 50, 1, 10, setup_s=100)
    lives = play.run()
    # At 50 long has 1,050 s to go, short needs 110: long goes, after 50 s of set-up for nothing.
    # short: 50 + 100 + 10 = 160; long again: 160 + 100 + 1,000 = 1,260.
    assert ends(lives) == {"short": 160, "long": 1_260}
    assert lives["long"].futile == 1


def test_the_same_is_put_off_until_the_setup_is_over() -> None:
    play = driver(1, "srtf/lazer")
    add(play, "long", 0, 1, 1_000, setup_s=100)
    add(play, "short", 50, 1, 10, setup_s=100)
    lives = play.run()
    # At 100 long works: value 1,000 - 100 = 900 > key 110. Relief comes at 1,100, in 1,000 s, more
    # than the price 5 + 200: long goes, not in set-up. short: 100 + 110 = 210; long: 210 + 1,100.
    assert ends(lives) == {"short": 210, "long": 1_310}
    assert lives["long"].futile == 0


def test_a_victim_about_to_finish_is_spared() -> None:
    play = driver(1, "srsf/lazer")
    add(play, "nearly", 0, 1, 100)
    add(play, "short", 95, 1, 1)
    lives = play.run()
    # At 95 nearly has 15 s to go, less a set-up: 5 < 11, the key of short. It ends at 110.
    assert ends(lives) == {"nearly": 110, "short": 121}
    assert lives["nearly"].preempted == []


def test_relief_within_the_price_is_waited_for() -> None:
    play = driver(2, "srsf/lazer")
    add(play, "long", 0, 1, 10_000)
    add(play, "ending", 0, 1, 240)
    add(play, "waiting", 200, 1, 100)
    lives = play.run()
    # At 200 long may go (value 9,800 > key 110), but ending ends at 250: relief 50 < price 70.
    assert ends(lives) == {"ending": 250, "waiting": 360, "long": 10_010}
    assert lives["long"].preempted == []


def test_without_relief_in_time_the_victim_goes_at_once() -> None:
    play = driver(2, "srsf/lazer")
    add(play, "long", 0, 1, 10_000)
    add(play, "ending", 0, 1, 290)
    add(play, "waiting", 200, 1, 100)
    lives = play.run()
    # As before, but ending ends at 300: relief 100 > price 70. waiting: 200 + 110 = 310. long has
    # worked 190 s; it starts again when ending has ended, at 300, and needs 10 + 9,810 s.
    assert ends(lives) == {"ending": 300, "waiting": 310, "long": 10_120}


def test_a_wrong_forecast_of_relief_costs_no_more_than_the_price() -> None:
    play = driver(2, "srsf/lazer")
    add(play, "long", 0, 1, 10_000)
    add(play, "late", 0, 1, 5_000, estimate_s=240)
    add(play, "waiting", 200, 1, 100)
    lives = play.run()
    # Relief is expected at 250 (in 50 < 70), but late does not end: at 251 its estimate is doubled
    # (end 490), relief is 239 s away, more than the price 70: the greatest value, long, goes.
    assert lives["long"].preempted == [251]
    assert lives["waiting"].end_s == 251 + 110


def test_who_has_waited_as_long_as_the_price_need_not_wait_any_more() -> None:
    play = driver(3, "srsf/lazer")
    add(play, "long", 0, 1, 10_000)
    add(play, "ending", 0, 1, 240)
    add(play, "later", 0, 1, 299)
    add(play, "waiting", 200, 1, 100)
    add(play, "other", 250, 1, 20)
    lives = play.run()
    # At 200 relief for waiting is 50 s away, under its price 70. At 250 ending ends, and other
    # (key 30 < 110) takes its place; the next relief is 59 s away, under the price once more. At
    # 270 waiting has waited 70 s, its limit: long goes.
    assert lives["other"].starts == [250]
    assert lives["long"].preempted == [270]
    assert lives["waiting"].end_s == 380


def test_a_burst_of_three_is_decided_once() -> None:
    play = driver(4, "srsf/lazer")
    add(play, "gang", 0, 4, 10_000)
    for name in ("a", "b", "c"):
        add(play, name, 100, 1, 20)
    lives = play.run()
    # One victim frees four GPUs: all three start at 100 and end at 130. gang has worked 90 s, and
    # starts again at 130: 130 + 10 + 9,910.
    assert [lives[name].end_s for name in "abc"] == [130, 130, 130]
    assert lives["gang"].preempted == [100]
    assert lives["gang"].end_s == 10_050


def test_two_victims_for_a_gang_and_a_thief_at_the_door() -> None:
    """CASES 25: what was freed for the gang is not taken by who comes meanwhile."""
    play = driver(2, "srsf/lazer", grace_s=30)
    add(play, "a", 0, 1, 10_000)
    add(play, "b", 0, 1, 9_000)
    add(play, "gang", 100, 2, 200)
    add(play, "thief", 110, 1, 395)
    lives = play.run()
    # Key of gang 420; both values are above, relief is far: a and b are told to go at 100 and are
    # gone at 130. thief would have gone before (key 405 < 420), but waits: gang runs from 130 to
    # 340. At its end thief starts, and with it b, who needs less than a.
    assert lives["gang"].starts == [130]
    assert lives["thief"].starts == [340]
    assert lives["b"].starts == [0, 340]


def test_a_job_too_big_to_ever_fit_waits_and_says_so() -> None:
    """CASES 26: nobody is preempted for a job that could not start then."""
    play = driver(4, "srsf/lazer")
    add(play, "small", 0, 4, 1_000)
    add(play, "huge", 50, 8, 1)
    lives = play.run()
    assert lives["small"].end_s == 1_010
    assert lives["small"].preempted == []
    assert lives["huge"].starts == []
    assert play.engine.reason("huge") is Reason.TOO_BIG


def test_nobody_goes_when_all_victims_together_are_too_few() -> None:
    """CASES 26: of four GPUs two may be preempted, and the gang needs three."""
    play = driver(4, "srsf/lazer")
    add(play, "may", 0, 2, 10_000)
    add(play, "may-not", 0, 2, 150)
    add(play, "gang", 100, 3, 100)
    lives = play.run()
    # At 100 may-not has 60 s to go, less a set-up, times 2: 100 < 330. It ends at 160; then may
    # alone is enough: value (10,010 - 160 - 10) x 2, relief at 10,010, so it goes.
    assert lives["may"].preempted == [160]
    assert lives["gang"].end_s == 160 + 110


def test_equals_do_not_preempt_each_other() -> None:
    play = driver(1, "srsf/lazer")
    add(play, "first", 0, 1, 100)
    add(play, "second", 0, 1, 100)
    lives = play.run()
    assert ends(lives) == {"first": 110, "second": 220}
    assert lives["first"].preempted == lives["second"].preempted == []


@pytest.mark.parametrize("variant", ["eager", "exempt:20", "nosetup", "lazer"])
@pytest.mark.parametrize("order", ["srtf", "srsf"])
def test_two_jobs_never_preempt_each_other_in_turn(order: str, variant: str) -> None:
    """CASES 24."""
    play = driver(2, f"{order}/{variant}")
    add(play, "a", 0, 2, 1_000)
    add(play, "b", 30, 2, 900)
    add(play, "c", 60, 1, 1_900)
    lives = play.run()
    assert sum(len(life.preempted) for life in lives.values()) <= 2


def test_a_safe_checkpoint_is_waited_for() -> None:
    play = driver(1, "srsf/lazer")
    add(play, "long", 0, 1, 10_000, checkpoint_s=100)
    add(play, "short", 90, 1, 50)
    lives = play.run()
    # At 90 long has worked 80 s since its last checkpoint; the next is 20 s away: waiting costs 20,
    # going now 80. At 110 nothing is lost. short: 110 + 60; long: 170 + 10 + 9,900.
    assert lives["long"].preempted == [110]
    assert ends(lives) == {"short": 170, "long": 10_080}


def test_a_checkpoint_far_off_is_not_waited_for() -> None:
    play = driver(1, "srsf/lazer")
    add(play, "long", 0, 1, 10_000, checkpoint_s=100)
    add(play, "short", 50, 1, 50)
    lives = play.run()
    # At 50 it has worked 40 s, and the next is 60 s away: it goes at once and loses the 40 s.
    assert lives["long"].preempted == [50]
    assert lives["long"].end_s == 110 + 10 + 10_000


def test_an_estimate_that_was_wrong_is_doubled() -> None:
    play = driver(1, "srsf/lazer")
    add(play, "wrong", 0, 1, 1_000, estimate_s=100)
    add(play, "short", 50, 1, 300)
    lives = play.run()
    # wrong is expected to end at 110; overrun at 111, 211, 411 the estimate is 200, 400, 800. At
    # 411 its value is 810 - 411 - 10 = 389 > 310 and relief 399 > price 170: it goes, 401 s done.
    # short: 411 + 310 = 721; wrong: 721 + 10 + 599.
    assert lives["wrong"].preempted == [411]
    assert ends(lives) == {"short": 721, "wrong": 1_330}


def test_a_completion_makes_a_deferral_needless() -> None:
    play = driver(2, "srsf/lazer")
    add(play, "long", 0, 1, 10_000)
    add(play, "early", 0, 1, 205, estimate_s=240)
    add(play, "waiting", 200, 1, 100)
    lives = play.run()
    # Put off at 200 until 250, it starts at 215, when early has ended; long is never touched.
    assert ends(lives) == {"early": 215, "waiting": 325, "long": 10_010}
    told = [line.what for line in play.engine.story("waiting")]
    assert isinstance(told[1], Weighing)
    assert told[1].chosen.moment is Moment.COMPLETION
    assert told[1].relief_s == 50


def test_a_gang_is_not_passed_for_ever() -> None:
    """CASES 34: a reservation, and backfill only where it does not delay."""
    play = driver(4, "fifo")
    add(play, "three", 0, 3, 90)
    add(play, "gang", 1, 4, 50)
    add(play, "in-time", 2, 1, 80)
    add(play, "too-long", 3, 1, 100)
    lives = play.run()
    # gang is to start at 100, when three ends. in-time would end at 92 and starts at once;
    # too-long would end at 202 and waits for gang, from 100 to 160.
    assert lives["in-time"].starts == [2]
    assert lives["gang"].starts == [100]
    assert lives["too-long"].starts == [160]


@pytest.mark.parametrize("policy", ["srsf", "srsf/eager", "srsf/lazer"])
def test_small_jobs_without_end_do_not_starve_a_gang(policy: str) -> None:
    """CASES 34: after a week and ten times its length it goes first, and stays."""
    play = Driver(Engine(Cluster.pool(2), policy_named(policy)))
    add(play, "gang", 100, 2, 3_000)
    for number in range(2_000):
        add(play, f"small-{number}", 500.0 * number, 1, 980)
    lives = play.run()
    # A small one (key 990 < 6,020) starts every 500 s and runs for 990: the gang would wait until
    # 1,000,000. It is an elder at 100 + 604,800 + 10 x 3,010 = 635,000; from then on what comes
    # free is kept for it, and the last small one ends within 990 s.
    start_s = lives["gang"].starts[-1]
    assert start_s <= 635_000 + 990
    assert lives["gang"].end_s == start_s + 3_010


def test_exempt_time_counts_from_the_placement() -> None:
    play = driver(1, "srsf/exempt:60")
    add(play, "long", 0, 1, 1_000)
    add(play, "short", 20, 1, 10)
    lives = play.run()
    assert lives["long"].preempted == [60]
    assert ends(lives) == {"short": 80, "long": 80 + 10 + 950}


def test_levels_of_attained_service() -> None:
    play = driver(1, "las/eager")
    add(play, "old", 0, 1, 10_000)
    add(play, "new", 5_000, 1, 100)
    add(play, "next", 5_010, 1, 100)
    lives = play.run()
    # old has worked 4,990 s at 5,000: past the first level, 3,250. new goes before it; next is in
    # the same level as new and waits for it.
    assert lives["old"].preempted == [5_000]
    assert lives["new"].end_s == 5_110
    assert lives["next"].end_s == 5_220


def test_a_level_is_left_at_the_very_second() -> None:
    play = driver(1, "las/eager")
    add(play, "old", 0, 1, 10_000)
    add(play, "new", 100, 1, 100)
    lives = play.run()
    # Both are in the first level until old has worked 3,250 s, at 3,260.
    assert lives["old"].preempted == [3_260]
    assert lives["new"].end_s == 3_370


def test_priority_classes_go_before_the_order_inside() -> None:
    play = driver(1, "priority:srsf/eager")
    add(play, "low", 0, 1, 50)
    add(play, "high", 20, 1, 1_000, priority=5)
    lives = play.run()
    assert lives["low"].preempted == [20]
    assert lives["high"].end_s == 1_030


def test_a_gang_is_kept_on_one_node() -> None:
    engine = Engine(Cluster.nodes(2, 8), policy_named("fifo"))
    play = Driver(engine, check=Engine.validate)
    add(play, "six", 0, 6, 100)
    add(play, "five", 0, 5, 100)
    add(play, "four", 0, 4, 100)
    lives = play.run()
    # Five GPUs are free at 0, on two nodes: four waits until 110, and takes one node's.
    assert lives["four"].starts == [110]


def test_gone_is_what_was_seen_gone() -> None:
    """CASES 36, 31: a victim's GPUs are not given away before its `Gone`."""
    engine = Engine(Cluster.pool(1), policy_named("srtf/eager"))
    play = Driver(engine, grace_s=600, check=Engine.validate)
    add(play, "long", 0, 1, 10_000)
    add(play, "short", 100, 1, 10)
    lives = play.run()
    assert lives["short"].starts == [700]


def test_a_preempted_job_is_pending_and_never_failed() -> None:
    """CASES 27: also when an operator orders it out in its set-up."""
    play = driver(1, "srsf/lazer")
    add(play, "job", 0, 1, 100)
    play.at(5, Evicted("job"))
    lives = play.run()
    # Ordered out at 5, it starts again at once: nobody else is there.
    assert ends(lives) == {"job": 115}
    assert play.engine.explain("job").preemptions == 1


def test_a_victim_that_does_not_go_is_replaced() -> None:
    """CASES 32: its GPUs are out of service, and who waited for them waits again."""
    engine = Engine(Cluster.pool(2), policy_named("srsf/eager"))
    for name in ("a", "b"):
        engine.handle(_submit(name, 0, 1_000), 0.0)
    told = engine.handle(_submit("short", 50, 10), 50.0)
    (preempt,) = [action for action in told if isinstance(action, Preempt)]
    told = engine.handle(Stuck(preempt.job_id), 80.0)
    engine.validate()
    (other,) = [action for action in told if isinstance(action, Preempt)]
    assert {preempt.job_id, other.job_id} == {"a", "b"}
    told = engine.handle(Gone(other.job_id, 0.0), 90.0)
    assert [action.job_id for action in told if isinstance(action, Start)] == ["short"]


def test_held_released_cancelled_drained() -> None:
    engine = Engine(Cluster.nodes(2, 1), policy_named("srsf/lazer"))
    engine.handle(NodeDrained(1), 0.0)
    engine.handle_all([_submit("a", 0, 10), _submit("b", 0, 20), _submit("c", 0, 30)], 0.0)
    assert engine.explain("a").phase is Phase.SETUP
    engine.handle(Held("b"), 1.0)
    assert engine.reason("b") is Reason.HELD
    engine.handle(Cancelled("c"), 2.0)
    assert engine.explain("c").phase is Phase.ENDED
    engine.handle(Released("b"), 3.0)
    assert engine.reason("b") is Reason.RESOURCES
    engine.handle(Cancelled("a"), 4.0)
    told = engine.handle(Gone("a"), 5.0)
    assert [action.job_id for action in told if isinstance(action, Start)] == ["b"]
    engine.validate()


def test_unknown_names_are_refused_with_those_that_there_are() -> None:
    for name in ("sfjs", "srsf/later", "srsf/exempt:soon"):
        with pytest.raises(ValueError):
            policy_named(name)
    assert policy_named("lazer", Information.NONE).variant.defers


def _submit(name: str, at_s: float, work_s: float) -> Submitted:
    return Submitted(JobSpec(name, 1, at_s, estimate_s=work_s, setup_s=SETUP_S))
