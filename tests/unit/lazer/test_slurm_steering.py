"""Steering against a Slurm that is played: orders may be lost, and it does what it likes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazerd.backend.protocol import (
    Began,
    Eligible,
    Ended,
    Gone,
    Known,
    NodeDrained,
    NodeUp,
    NotEligible,
    Report,
    Running,
    Stuck,
    Submission,
    Withdrawn,
)
from lazerd.backend.slurm.entry import Wanted
from lazerd.backend.slurm.orders import Order
from lazerd.backend.slurm.placed import PATIENCE_S, SHY_S
from lazerd.backend.slurm.records import Held, SlurmJob, SlurmNode, Snapshot
from lazerd.backend.slurm.roster import Roster
from lazerd.backend.slurm.steering import Steering

NODES = tuple(SlurmNode(f"n{n}", 4, ("IDLE",), ("gpu",)) for n in (1, 2))


class PlayedSlurm:
    """Jobs that change by commands, and by themselves when asked to."""

    def __init__(self, jobs: int = 1) -> None:
        self.jobs = {
            number: SlurmJob(
                number, "PENDING", reason="JobHeldUser", partitions=("gpu",), priority=0, gpus=1,
                gpus_per_node=1, admin_comment="lazer:new", submitted_s=float(number),
            )
            for number in range(1, jobs + 1)
        }  # fmt: skip
        self.nodes = NODES
        self.steps: set[int] = set()
        self.log: list[tuple[str, ...]] = []

    def change(self, number: int, **fields: object) -> None:
        self.jobs[number] = replace(self.jobs[number], **fields)  # type: ignore[arg-type]

    def do(self, orders: Sequence[Order]) -> None:
        for order in orders:
            for command in order.commands:
                self.command(command)
            if order.steps:
                number = int(order.job_id)
                self.command(order.with_steps if number in self.steps else order.without)

    def command(self, command: tuple[str, ...]) -> None:
        self.log.append(command)
        named = command[2] if command[1] in ("update", "release", "requeuehold") else command[-1]
        number = int(named.removeprefix("JobId="))
        job = self.jobs[number]
        match command:
            case ("scontrol", "update", _, *settings):
                self._update(number, dict(word.split("=", 1) for word in settings))
            case ("scontrol", "release", _):
                self.change(number, priority=10, reason="")
            case ("scontrol", "requeuehold", _) if job.is_running:
                self.change(number, state="PENDING", flags=frozenset({"COMPLETING"}), priority=0,
                            restarts=job.restarts + 1, reason="JobHeldUser")  # fmt: skip
            case ("scontrol", "requeuehold", _) if job.is_over:
                self.change(number, state="PENDING", priority=0, restarts=job.restarts + 1,
                            nodes=(), held=(), reason="JobHeldUser")  # fmt: skip
            case ("scancel", _):
                self.change(number, state="CANCELLED", nodes=(), held=(), flags=frozenset())

    def _update(self, number: int, settings: dict[str, str]) -> None:
        if "AdminComment" in settings:
            self.change(number, admin_comment=settings["AdminComment"])
        if "ReqNodeList" in settings:
            self.change(number, required_nodes=settings["ReqNodeList"])
        if "Priority" in settings:
            self.change(number, priority=0, reason="JobHeldAdmin")
        if "Dependency" in settings:
            self.change(number, dependency=settings["Dependency"] + "(unfulfilled)")
        if "StartTime" in settings:
            far = settings["StartTime"] != "now"
            self.change(number, begins_s=1e12 if far else None)

    def start(self, number: int) -> bool:
        """Slurm starts what it may."""
        job = self.jobs[number]
        if not job.is_pending or job.is_held or job.begins_s or job.dependency:
            return False
        node = job.required_nodes or "n1"
        self.change(number, state="RUNNING", nodes=(node,), held=(Held(node, 1, (0,)),))
        return True

    def finish(self, number: int, state: str = "COMPLETED") -> None:
        """It ends by itself."""
        if self.jobs[number].is_running:
            self.change(number, state=state, nodes=("n1",), held=())

    def clean_up(self, number: int) -> None:
        """Its nodes are done with it."""
        if self.jobs[number].is_completing:
            self.change(number, flags=frozenset(), nodes=(), held=())

    def snapshot(self) -> Snapshot:
        return Snapshot(tuple(self.jobs.values()), self.nodes)


class Played:
    """Steering, a played Slurm, and a clock."""

    def __init__(self, jobs: int = 1, known: Sequence[Known] = ()) -> None:
        self.slurm = PlayedSlurm(jobs)
        self.steering = Steering(["gpu"], Roster())
        self.steering.adopt(known)
        self.now_s = 1000.0
        self.reports: list[Report] = []

    def look(self, after_s: float = 1.0, lost: bool = False) -> list[Report]:
        """One look; its orders are carried out, or lost."""
        self.now_s += after_s
        step = self.steering.look(self.slurm.snapshot(), self.now_s)
        if not lost:
            self.slurm.do(step.orders)
        else:
            for order in step.orders:
                self.steering.failed(order)
        self.reports += step.reports
        return [r for r in step.reports if not isinstance(r, NodeUp | NodeDrained)]

    def start(self, job_id: str = "1", node: int = 0) -> None:
        assert self.steering.start(job_id, ((node, 1),), self.now_s)

    def leave(self, job_id: str = "1", grace_s: float = 5.0) -> None:
        self.steering.leave(job_id, 15, grace_s, self.now_s)

    def running(self) -> Played:
        self.look()
        self.start()
        self.look()
        assert self.slurm.start(1)
        assert self.look() == [Began("1", "n1 GPU 0")]
        return self


def test_a_new_job_is_reported_and_held_by_lazerd() -> None:
    played = Played()
    (report,) = played.look()
    assert isinstance(report, Submission)
    assert played.slurm.jobs[1].reason == "JobHeldAdmin"
    assert played.slurm.jobs[1].admin_comment == "lazer:line"
    assert not played.slurm.start(1)
    assert [type(report) for report in played.reports] == [NodeUp, NodeUp, Submission]


def test_a_start_is_for_its_node_and_once() -> None:
    played = Played()
    played.look()
    played.start(node=1)
    assert played.look() == []
    assert played.slurm.jobs[1].admin_comment == "lazer:start:0"
    assert played.slurm.jobs[1].required_nodes == "n2"
    before = len(played.slurm.log)
    played.look()
    assert len(played.slurm.log) == before, "nothing is ordered twice"
    assert played.slurm.start(1)
    assert played.look() == [Began("1", "n2 GPU 0")]
    assert played.look() == []


def test_a_lost_order_is_given_again() -> None:
    played = Played()
    played.look(lost=True)
    assert played.look() == []
    assert played.slurm.jobs[1].admin_comment == "lazer:line"
    played.start()
    played.look(lost=True)
    played.look()
    assert played.slurm.start(1)


def test_a_preempted_job_is_back_in_line_and_its_mark_is_gone() -> None:
    played = Played().running()
    played.leave()
    assert played.look() == []
    assert played.slurm.log[-1] == ("scancel", "--signal=15", "--full", "1")
    assert played.look() == [], "the signal goes out once"
    played.slurm.finish(1, "FAILED")
    assert played.look() == [], "it ended after the signal: it is put back"
    assert played.look() == [Gone("1", killed=False)]
    assert played.slurm.jobs[1].admin_comment == "lazer:line"
    assert played.slurm.jobs[1].required_nodes == ""


def test_steps_are_told_where_there_are_some() -> None:
    played = Played().running()
    played.slurm.steps.add(1)
    played.leave()
    played.look()
    assert played.slurm.log[-1] == ("scancel", "--signal=15", "1")


def test_a_lost_signal_is_sent_again() -> None:
    played = Played().running()
    played.leave()
    played.look(lost=True)
    played.look()
    assert played.slurm.log[-1][0] == "scancel"


def test_after_its_grace_it_is_put_out() -> None:
    played = Played().running()
    played.leave(grace_s=5.0)
    played.look()
    assert played.look(3.0) == []
    assert played.slurm.jobs[1].is_running
    played.look(3.0)
    assert played.slurm.jobs[1].is_completing
    assert played.look() == []
    played.slurm.clean_up(1)
    assert played.look() == [Gone("1", killed=True)]


def test_32_36_what_does_not_go_is_stuck_once_and_gone_when_it_is() -> None:
    played = Played().running()
    played.leave(grace_s=5.0)
    played.look()
    played.look(6.0)
    (report,) = played.look(200.0)
    assert isinstance(report, Stuck)
    assert played.look() == []
    played.slurm.clean_up(1)
    assert played.look() == [Gone("1", killed=True)]


def test_a_job_that_ended_before_the_signal_has_ended() -> None:
    played = Played().running()
    played.slurm.finish(1)
    played.leave()
    assert played.look() == [Ended("1", 0)]
    played.steering.forget("1")
    assert played.look() == []
    assert played.steering.entries == {}


@pytest.mark.parametrize("state", ["CANCELLED", "TIMEOUT"])
def test_a_job_that_its_user_cancels_while_it_leaves_has_ended(state: str) -> None:
    played = Played().running()
    played.leave()
    played.look()
    played.slurm.finish(1, state)
    assert played.look() == [Ended("1", 0, state)]


def test_27_a_job_that_loses_its_node_is_submitted_anew_at_its_place() -> None:
    played = Played().running()
    played.slurm.change(1, state="PENDING", nodes=(), held=(), restarts=1, submitted_s=5000.0)
    assert played.look() == [Ended("1", None, "requeued, not by lazerd")]
    assert not played.slurm.start(1), "it is held meanwhile"
    played.steering.forget("1")
    (report,) = played.look()
    assert isinstance(report, Submission)
    assert report.spec.submitted_s == 1.0


def test_35_one_look_without_a_job_proves_nothing() -> None:
    played = Played().running()
    job = played.slurm.jobs.pop(1)
    assert played.look() == []
    played.slurm.jobs[1] = job
    assert played.look() == []
    del played.slurm.jobs[1]
    assert played.look() == []
    assert played.look() == [Ended("1", None, "Slurm no longer knows the job")]


def test_a_state_that_is_not_known_proves_nothing() -> None:
    played = Played().running()
    played.slurm.change(1, state="SOMETHING_NEW")
    assert played.look() == []
    assert played.look() == []


def test_a_slurmctld_that_forgot_a_release_is_told_again() -> None:
    played = Played()
    played.look()
    before = played.slurm.jobs[1]
    played.start()
    played.look()
    played.slurm.jobs[1] = before
    played.look()
    assert played.slurm.start(1)
    assert played.look() == [Began("1", "n1 GPU 0")]


def test_a_start_that_slurm_does_not_make_is_given_up_and_waits_its_turn() -> None:
    played = Played()
    played.look()
    played.start()
    played.look()
    played.slurm.change(1, reason="ReqNodeNotAvail")
    assert played.look(PATIENCE_S) == []
    (report,) = played.look()
    assert report == Ended("1", None, "Slurm did not start it: ReqNodeNotAvail")
    assert not played.slurm.start(1)
    played.steering.forget("1")
    submitted, refused = played.look()
    assert isinstance(submitted, Submission)
    assert refused == NotEligible("1", "ReqNodeNotAvail")
    assert played.look(SHY_S + 1) == [Eligible("1")]


def test_a_dependency_is_left_to_slurm_behind_a_begin_time() -> None:
    played = Played(2)
    played.slurm.change(2, dependency="afterok:1(unfulfilled)")
    assert [type(report) for report in played.look()] == [Submission, Submission, NotEligible]
    assert not played.slurm.jobs[2].is_held and not played.slurm.start(2)
    assert played.look() == []
    played.slurm.change(2, dependency="")
    assert played.look() == [Eligible("2")]
    assert played.slurm.jobs[2].is_held and played.slurm.jobs[2].begins_s is None


def test_who_waits_for_a_job_that_only_leaves_goes_on_waiting() -> None:
    played = Played(2)
    played.slurm.change(2, dependency="afterany:1(unfulfilled)")
    played.running()
    played.leave()
    played.look()
    played.slurm.finish(1)
    played.slurm.change(2, dependency="")  # for Slurm, 1 has ended
    assert played.look() == []
    assert played.look() == [Gone("1")]
    assert played.look() == []
    assert played.slurm.jobs[2].dependency == "afterany:1(unfulfilled)"
    assert played.look() == []
    assert played.steering._dependencies.owed == {}


def test_a_users_own_nodes_stay() -> None:
    played = Played()
    played.slurm.change(1, required_nodes="n2")
    played.look()
    played.start(node=0)
    played.look()
    assert played.slurm.jobs[1].required_nodes == "n2"
    assert played.slurm.start(1)
    played.look()
    played.leave()
    played.look()
    played.look(6.0)
    played.slurm.clean_up(1)
    played.look()
    assert played.slurm.jobs[1].required_nodes == "n2"
    assert played.slurm.jobs[1].admin_comment == "lazer:line:own"


def test_cancelled_withdrawn_and_forgotten() -> None:
    played = Played(3)
    played.look()
    played.start("1")
    played.look()
    played.slurm.start(1)
    played.look()
    played.steering.end("1", played.now_s)
    played.steering.drop("2", played.now_s)
    played.slurm.change(3, state="CANCELLED")
    assert played.look() == [Withdrawn("3")]
    assert played.look() == [Gone("1", 0)]
    for job_id in ("1", "3"):
        played.steering.forget(job_id)
    played.look()
    assert played.steering.entries == {}
    assert {job.state for job in played.slurm.jobs.values()} == {"CANCELLED"}


def test_a_restarted_daemon_goes_on_from_the_marks() -> None:
    before = Played().running()
    after = Played(known=[Known("1", None, ((0, 1),), leaving=True, grace_s=5.0)])
    after.slurm, after.now_s = before.slurm, before.now_s
    before.leave()
    before.look()
    before.slurm.finish(1, "FAILED")
    assert after.look() == [], "told by the one before, ended while nobody was there: put back"
    assert after.look() == [Gone("1"), Eligible("1")]


def test_a_node_that_leaves_and_comes_back() -> None:
    played = Played()
    played.look()
    closed = replace(NODES[1], states=("IDLE", "DRAIN"), reason="fan")
    played.slurm.nodes = (NODES[0], closed)
    played.look()
    assert played.reports[-1] == NodeDrained(1, "n2 is drained: fan")
    played.slurm.nodes = NODES
    played.look()
    assert played.reports[-1] == NodeUp(1, 4, "n2")
    played.slurm.nodes = NODES[:1]
    played.look()
    assert played.reports[-1] == NodeDrained(1, "n2 is no longer in the partitions")


MOVES = st.sampled_from(
    ["look", "lost", "start", "leave", "slurm starts", "slurm ends", "slurm cleans", "restart"]
)


@given(st.lists(st.tuples(MOVES, st.integers(1, 3)), max_size=60))
def test_whatever_happens(moves: list[tuple[str, int]]) -> None:
    """No job runs that was not let; Gone and Ended are true when they are said; it all ends."""
    played = Played(3)
    played.look()
    for move, number in moves:
        _make(played, move, number)
    _wind_up(played)
    assert {job.state for job in played.slurm.jobs.values()} <= {"COMPLETED", "PENDING"}


def _make(played: Played, move: str, number: int) -> None:
    job_id, steering = str(number), played.steering
    entry = steering.entries.get(job_id)
    if move in ("look", "lost"):
        _check(played, played.look(2.0, lost=move == "lost"))
    elif move == "start" and entry is not None and entry.wanted is Wanted.LINE:
        played.start(job_id)
    elif move == "leave" and entry is not None and entry.wanted is Wanted.RUN and entry.began:
        played.leave(job_id)
    elif move == "slurm starts":
        was_let = entry is not None and entry.wanted in (Wanted.RUN, Wanted.LEAVE)
        assert not played.slurm.start(number) or was_let
    elif move == "slurm ends":
        played.slurm.finish(number)
    elif move == "slurm cleans":
        played.slurm.clean_up(number)
    elif move == "restart":
        played.steering = _restarted(steering)


def _restarted(old: Steering) -> Steering:
    fresh = Steering(["gpu"], Roster())
    fresh.adopt(
        Known(
            entry.job_id, None, entry.placement,
            leaving=entry.wanted is Wanted.LEAVE, working=entry.began, grace_s=entry.grace_s,
        )
        for entry in old.entries.values()
        if entry.wanted is not Wanted.OVER
    )  # fmt: skip
    return fresh


def _check(played: Played, reports: list[Report]) -> None:
    for report in reports:
        assert not isinstance(report, Running | Withdrawn), "nothing runs that was not let"
        if isinstance(report, Gone):
            job = played.slurm.jobs[int(report.job_id)]
            assert job.is_pending and job.is_held
        if isinstance(report, Ended):
            assert not played.slurm.jobs[int(report.job_id)].held
            played.steering.forget(report.job_id)


def _wind_up(played: Played) -> None:
    """Slurm does all that it may: everybody who was let runs to an end, or is back in line."""
    for _ in range(8):
        for number in played.slurm.jobs:
            played.slurm.clean_up(number)
            played.slurm.start(number)
        _check(played, played.look(2.0))
        for number in played.slurm.jobs:
            played.slurm.finish(number)
        _check(played, played.look(2.0))
