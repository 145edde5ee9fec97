"""The pure parts of lazerd: what may be told, who has which GPUs, what is counted, what is safe."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazerd.backend.allotment import Allotment
from lazerd.backend.protocol import Gpu, GpuState, Launch
from lazerd.checkpoints import Checkpoints
from lazerd.conduct.admission import Gate
from lazerd.conduct.tally import Tally
from lazerd.engine import Engine
from lazerd.memory import book as books
from lazerd.memory import records
from lazerd.memory.book import Book, Record
from lazerd.memory.capacity import Capacity
from lazerd.memory.snapshot import freeze, thaw
from lazerd.model.actions import Preempt, Start, WakeAt
from lazerd.model.cluster import Cluster
from lazerd.model.events import (
    Cancelled,
    CheckpointSafe,
    Evicted,
    Finished,
    Gone,
    Held,
    NodeDrained,
    NodeUp,
    Released,
    SetupEnded,
    Stuck,
    Submitted,
    Wakeup,
)
from lazerd.model.job import JobSpec
from lazerd.model.weighing import Candidate, Moment, Weighing
from lazerd.policy.names import Information, policy_named

POLICY = policy_named("srsf/nosetup", Information.GIVEN)


def spec(job_id: str, gpus: int = 1, estimate_s: float = 100.0) -> JobSpec:
    return JobSpec(job_id, gpus, 0.0, estimate_s=estimate_s)


# --- records ---


def test_every_event_and_action_survives_the_store() -> None:
    chosen = Candidate(Moment.NOW, 0.0, 1.5, 2.5, ("a", "b"))
    weighing = Weighing("j", 1.0, 2.0, math.inf, 4.0, 5.0, 6.0, 7.0, chosen, (chosen,))
    things = [
        Submitted(JobSpec("j", 2, 0.5, "ada", "train", "c", 1, 60.0, None, math.inf, 30.0)),
        SetupEnded("j"),
        CheckpointSafe("j", 1.25),
        Finished("j"),
        Gone("j", None),
        Gone("j", 3.5),
        Stuck("j"),
        Wakeup(),
        Cancelled("j"),
        Held("j"),
        Released("j"),
        Evicted("j"),
        NodeUp(0, 4),
        NodeDrained(0),
        Start("j", ((0, 2), (1, 1))),
        Preempt("j", "k", weighing),
        Preempt("j", None, None),
        WakeAt(None),
    ]
    assert records.decode(records.encode(things)) == things


@pytest.mark.parametrize("text", ["", "[]x", '[["Nope", {}]]', '[["SetupEnded", {"x": 1}]]'])
def test_what_is_no_record_is_said(text: str) -> None:
    with pytest.raises(records.Unreadable):
        records.decode(text)


def test_a_record_survives_the_store() -> None:
    launch = Launch("7", ("a", "b"), "/", {"X": "\udce4"}, "out", groups=(1, 2))
    job = JobSpec("7", 2, 1.0, checkpoint_s=math.inf)
    record = Record(number=7, uid=1000, spec=job, launch=launch, placement=((0, 2),))
    assert books.decode(books.encode(record)) == record


# --- an engine that is written down ---


@given(st.lists(st.integers(1, 4), min_size=1, max_size=12), st.integers(0, 12))
def test_a_thawed_engine_decides_as_the_one_that_was_frozen(sizes: list[int], at: int) -> None:
    engine = Engine(Cluster.pool(4), POLICY)
    for number, gpus in enumerate(sizes[:at]):
        engine.handle(Submitted(spec(str(number), gpus, 10.0 * (number + 1))), float(number))
    again = thaw(freeze(engine), POLICY)
    for number, gpus in enumerate(sizes[at:], at):
        event = Submitted(spec(str(number), gpus, 10.0 * (number + 1)))
        assert engine.handle(event, float(number)) == again.handle(event, float(number))
    for number in range(len(sizes)):
        job = engine.floor.jobs[str(number)]
        if job.phase.value == "setup":
            done = [Finished(job.job_id)]
            assert engine.handle_all(done, 100.0) == again.handle_all(done, 100.0)


# --- what the engine may be told ---

_EVENTS = st.sampled_from([SetupEnded, Finished, Gone, Stuck, Cancelled, Held, Released, Evicted])


@given(st.lists(st.lists(st.tuples(_EVENTS, st.sampled_from("abc")), max_size=6), max_size=12))
def test_what_the_gate_admits_the_engine_takes(cycles: list[list[tuple[type, str]]]) -> None:
    engine = Engine(Cluster.pool(2), POLICY)
    engine.handle_all([Submitted(spec(j, 1 + (j == "c"))) for j in "abc"], 0.0)
    for now, cycle in enumerate(cycles, 1):
        gate = Gate(engine)
        events = [kind(job) for kind, job in cycle]
        engine.handle_all([event for event in events if gate.admits(event)], float(now))


def test_a_job_is_submitted_once() -> None:
    gate = Gate(Engine(Cluster.pool(1), POLICY))
    assert gate.admits(Submitted(spec("a")))
    assert not gate.admits(Submitted(spec("a")))
    assert gate.admits(Held("a"))
    assert not gate.admits(Held("a"))
    assert gate.admits(Released("a"))


# --- GPUs ---


def gpus(count: int, *occupied: int) -> list[Gpu]:
    return [
        Gpu(n, str(n), GpuState.OCCUPIED if n in occupied else GpuState.EMPTY) for n in range(count)
    ]


def test_gpus_that_are_not_seen_empty_are_not_given_out() -> None:
    allotment = Allotment(gpus(4, 1))
    assert allotment.offered == 3
    assert allotment.pick("a", 2) == (0, 2)
    allotment.see(gpus(4, 0, 1, 2))  # its own processes are on them now
    assert (allotment.offered, allotment.pick("b", 2)) == (3, None)
    allotment.release("a")
    assert allotment.offered == 1
    assert "occupied" in allotment.out[0]


def test_gpus_of_a_job_that_is_stuck_come_back() -> None:
    allotment = Allotment(gpus(4))
    allotment.pick("a", 3)
    allotment.give_up("a", "state D")
    assert (allotment.offered, allotment.held_by("a")) == (1, (0, 1, 2))
    allotment.release("a")
    assert allotment.offered == 4


def test_a_node_shrinks_by_what_is_free() -> None:
    capacity, engine = Capacity(), Engine(Cluster.pool(4), POLICY)
    engine.handle(Submitted(spec("a", 3)), 0.0)
    node = capacity.node(0)
    node.offered = 1
    assert capacity.due(engine.floor.cluster, {}) == [NodeDrained(0), NodeUp(0, 3)]
    assert capacity.due(engine.floor.cluster, {0: 3}) == [NodeDrained(0), NodeUp(0, 1)]
    node.offered, node.guests = 6, 1
    assert capacity.due(engine.floor.cluster, {}) == [NodeUp(0, 5)]
    node.offered, node.guests, node.drained = 4, 0, True
    assert capacity.due(engine.floor.cluster, {}) == [NodeDrained(0)]


# --- the book and the tally ---


def test_gpu_time_is_counted_by_phase() -> None:
    book, tally = Book(), Tally(lambda records: ["" for _ in records])
    book.add(Record(number=1, uid=0, spec=spec("a", 2)))
    preempt = Preempt("a", "b", None)
    cycles = [
        (0.0, [Submitted(spec("a", 2))], [Start("a", ((0, 2),))]),
        (10.0, [SetupEnded("a")], []),
        (40.0, [], [preempt]),
        (45.0, [Gone("a")], []),
        (60.0, [], [Start("a", ((0, 2),))]),
        (65.0, [], [preempt]),
        (66.0, [Gone("a")], []),
    ]
    for now, events, actions in cycles:
        book.take(events, actions, now)
        tally.watch(now, events, actions, book.changed())
    record = book.records["a"]
    assert (record.setup_gpu_s, record.work_gpu_s, record.leaving_gpu_s) == (30.0, 60.0, 12.0)
    assert (record.preemptions, record.futile, record.state) == (2, 1, "pending")
    assert record.work_s == 30.0
    assert tally.gpu_s == {"setup": 30.0, "work": 60.0, "leaving": 12.0}
    assert (tally.preemptions["for_a_job"], tally.futile, tally.starts) == (2, 1, 2)


# --- checkpoints ---


def mount(*files: tuple[str, str, float], at: str = "/m") -> dict[str, object]:
    pending = [
        {"path": path, "state": state, "age_s": age_s, "job": "lazer:7"}
        for path, state, age_s in files
    ]
    return {"mountpoint": at, "pending": pending}


def test_a_checkpoint_is_safe_when_none_of_its_files_is_less() -> None:
    checkpoints = Checkpoints("lazer:", "replicated")
    assert checkpoints.see([mount(("a", "captured", 5.0), ("b", "captured", 1.0))], 100.0) == {}
    assert checkpoints.see([mount(("a", "replicated", 6.0), ("b", "captured", 2.0))], 101.0) == {}
    settled = checkpoints.see([mount(("a", "replicated", 7.0), ("b", "replicated", 3.0))], 102.0)
    assert (settled["7"].at_s, settled["7"].paths) == (99.0, {("/m", "a"), ("/m", "b")})
    assert checkpoints.is_safe(["replicated", "durable"])
    assert not checkpoints.is_safe(["replicated", "lost"])
    assert not checkpoints.is_safe([])  # all of it has been removed
    assert checkpoints.see([mount()], 103.0) == {}


def test_a_mount_that_does_not_answer_says_nothing() -> None:
    checkpoints = Checkpoints("lazer:", "durable")
    checkpoints.see([mount(("a", "replicated", 5.0))], 100.0)
    assert checkpoints.see([], 101.0) == {}
    assert checkpoints.see([mount(at="/other")], 102.0) == {}
    assert set(checkpoints.see([mount()], 103.0)) == {"7"}
