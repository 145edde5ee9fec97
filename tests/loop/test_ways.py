"""The ways of files: what is set off when, what waits for what, and what keeps the promises."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from cachexfs.config import PathPolicy
from cachexfs.durability.actions import Attributes, Mkdir, Rename, Slot, Unlink
from cachexfs.durability.forecast import Model
from cachexfs.durability.latency.curve import grid, lognormal
from cachexfs.durability.latency.fit import PhaseFit
from cachexfs.durability.latency.sample import Work
from cachexfs.durability.life import Acknowledged, Committed, Life, Settled, Written
from cachexfs.durability.states import Effect, State
from cachexfs.measurements.legs import Legs
from cachexfs.measurements.recorder import Recorder
from cachexfs.ram.node import Node, Origin, Signature
from cachexfs.ways import Ways

pytestmark = pytest.mark.trio

BOTH = (Effect.REPLICATE, Effect.FLUSH)
FLUSH_ONLY = (Effect.FLUSH,)
SIZE = 100_000_000


@dataclass
class Peers:
    """A replicator that only remembers."""

    chosen: tuple[str, ...] = ("peer",)
    sent: list[int] = field(default_factory=list)

    def replicate(self, node: Node) -> None:
        self.sent.append(node.ino)


@dataclass
class Keeping:
    recorder: Recorder = field(default_factory=Recorder)


def fit(phase: str, seconds: float) -> PhaseFit:
    """A phase that takes about so long for `SIZE`."""
    unit = lognormal(seconds / SIZE, 0.1)
    return PhaseFit(
        phase=phase, family="lognormal", parameters=(), work=Work(1.0), samples=100,
        unit_times=tuple(unit.quantile(p) for p in grid()),
    )  # fmt: skip


class Place:
    """Ways, with files that are captured."""

    def __init__(self, path: PathPolicy, replicate_s: float = 1.0, flush_s: float = 1.0) -> None:
        self.keeping = Keeping()
        self.keeping.recorder.model = Model(
            [fit("replicate", replicate_s), fit("flush", flush_s), fit("commit", 0.001)]
        )
        self.peers = Peers()
        self.ways = Ways(Legs(self.keeping, 1), path, 0.95, 1, lambda node: f"file {node.ino}")
        self.ways.replicator = self.peers

    def file(self, ino: int, job: str = "j") -> Node:
        """A file that has just settled."""
        node = Node(ino=ino, kind="file", job=job, blob=ino, names={Slot(1, b"f%d" % ino)})
        node.life = Life()
        self.ways.writing(node)
        node.life.handle(Settled(), 0.0)
        node.settled_as = Signature(SIZE, 0)
        self.ways.captured(node)
        return node

    def commit(self, node: Node) -> None:
        assert node.life is not None
        self.ways.copied(node, node.life.version)
        node.life.handle(Committed(node.life.version), 1.0)
        self.ways.committed(node, node.life.version)

    def acknowledge(self, node: Node) -> None:
        assert node.life is not None
        node.life.handle(Acknowledged("peer", node.life.version), 1.0)
        self.ways.acknowledged(node, node.life.version, "peer")


async def may_flush(place: Place, node: Node) -> bool:
    """Whether its flush may begin now."""
    with trio.move_on_after(0) as scope:
        await place.ways.clear_to_flush(node.ino, 1)
    return not scope.cancelled_caught


async def test_both_sets_off_both_and_holds_nothing() -> None:
    place = Place("both")
    node = place.file(1)
    assert place.ways.depart(node, BOTH) == BOTH
    assert await may_flush(place, node)


async def test_other_effects_pass_as_they_are() -> None:
    place = Place("replica")
    node = place.file(1)
    assert place.ways.depart(node, (Effect.REPLICATE,)) == (Effect.REPLICATE,)
    assert place.ways.depart(node, ()) == ()


# --- replica --------------------------------------------------------------------------------------


async def test_a_flush_waits_for_the_replica() -> None:
    place = Place("replica")
    node = place.file(1)
    assert place.ways.depart(node, BOTH) == BOTH
    assert not await may_flush(place, node)
    place.acknowledge(node)
    assert await may_flush(place, node)


async def test_a_flush_does_not_wait_for_a_replica_that_does_not_come(
    autojump_clock: MockClock,
) -> None:
    """Twice what was forecast, and then it goes: a peer that is ill holds nothing up for long."""
    place = Place("replica", replicate_s=5.0)
    node = place.file(1)
    place.ways.depart(node, BOTH)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(place.ways.run)
        begun_s = trio.current_time()
        await place.ways.clear_to_flush(1, 1)
        assert 10 < trio.current_time() - begun_s < 14
        nursery.cancel_scope.cancel()


async def test_a_held_flush_is_forecast_after_the_replica() -> None:
    place = Place("replica", replicate_s=2.0, flush_s=5.0)
    node = place.file(1)
    place.ways.depart(node, BOTH)
    assert place.ways.etas(node) == pytest.approx((2.0, 7.0), rel=0.05)
    outlook = place.keeping.recorder.model.outlook(place.ways.way_of(node))
    assert outlook.safe == outlook.replicated
    assert outlook.durable is not None and outlook.durable.median() == pytest.approx(7.0, rel=0.05)


async def test_who_waits_for_durable_does_not_wait_for_the_replica() -> None:
    place = Place("replica")
    node = place.file(1)
    place.ways.depart(node, BOTH)
    place.ways.somebody_waits_for(State.REPLICATED)
    assert not await may_flush(place, node)
    place.ways.somebody_waits_for(State.DURABLE)
    assert await may_flush(place, node)


async def test_a_file_that_is_written_again_holds_nothing() -> None:
    place = Place("replica")
    node = place.file(1)
    place.ways.depart(node, BOTH)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(place.ways.clear_to_flush, 1, 1)
        await wait_all_tasks_blocked()
        assert node.life is not None
        node.life.handle(Written(), 1.0)
        place.ways.cancelled(node)  # the nursery ends: nobody waits any more


# --- auto -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("replicate_s", "flush_s", "path"), [(1.0, 100.0, "replica"), (100.0, 1.0, "direct")]
)
async def test_auto_takes_the_way_that_is_faster(
    replicate_s: float, flush_s: float, path: str
) -> None:
    place = Place("auto", replicate_s, flush_s)
    node = place.file(1)
    effects = place.ways.depart(node, BOTH)
    assert effects == (FLUSH_ONLY if path == "direct" else BOTH)
    assert await may_flush(place, node) == (path == "direct")
    ((_, name, _),) = place.keeping.recorder.drain_decisions()
    assert name == "file 1"
    assert node.life is not None and f"path {path}" in node.life.story()[-1]


async def test_later_files_of_the_job_follow_one_that_goes_direct() -> None:
    """Or the peers would have `latest` before what it points to."""
    place = Place("auto", 100.0, 1.0)
    first, other = place.file(1), place.file(2, job="another")
    place.ways.depart(first, BOTH)
    place.keeping.recorder.model = Model([fit("replicate", 1.0), fit("flush", 100.0)])
    later = place.file(3)
    later.settled_as = Signature(10, 0)
    assert place.ways.depart(later, BOTH) == FLUSH_ONLY
    other.settled_as = Signature(10, 0)
    assert place.ways.depart(other, BOTH) == BOTH
    place.commit(first)
    place.commit(later)
    after = place.file(4)
    after.settled_as = Signature(10, 0)
    assert place.ways.depart(after, BOTH) == BOTH


async def test_before_a_change_of_names_all_that_was_held_back_is_sent() -> None:
    place = Place("auto", 100.0, 1.0)
    for ino in (1, 2):
        place.ways.depart(place.file(ino), BOTH)
    place.ways.before_peers_are_told(Mkdir(9, Slot(1, b"d")), None)
    place.ways.before_peers_are_told(Attributes(1), None)
    assert place.peers.sent == []
    place.ways.before_peers_are_told(Unlink(9, Slot(1, b"old")), None)
    assert place.peers.sent == [1, 2]
    place.ways.before_peers_are_told(Unlink(9, Slot(1, b"old")), None)
    assert place.peers.sent == [1, 2]


async def test_a_name_given_to_a_file_that_the_peers_lack_sends_it_first() -> None:
    place = Place("auto", 100.0, 1.0)
    node = place.file(1)
    place.ways.depart(node, BOTH)
    place.commit(node)
    assert place.peers.sent == []
    rename = Rename(1, Slot(1, b"latest.tmp"), Slot(1, b"latest"))
    place.ways.before_peers_are_told(rename, node)
    assert place.peers.sent == [1]


async def test_a_direct_way_that_is_late_sends_it_to_the_peers(autojump_clock: MockClock) -> None:
    place = Place("auto", 100.0, 2.0)
    place.ways.depart(place.file(1), BOTH)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(place.ways.run)
        await trio.sleep(3)
        assert place.peers.sent == []
        await trio.sleep(4)
        assert place.peers.sent == [1]
        nursery.cancel_scope.cancel()


async def test_a_file_that_peers_may_hold_an_older_content_of_never_goes_direct() -> None:
    place = Place("auto", 100.0, 1.0)
    known_there = place.file(1)
    known_there.origin = Origin(1, 1)
    assert place.ways.depart(known_there, BOTH) == BOTH
    held_there = place.file(2)
    assert held_there.life is not None
    held_there.life.replicas["peer"] = 0
    assert place.ways.depart(held_there, BOTH) == BOTH


async def test_a_file_that_is_written_again_is_not_sent_in_its_old_version() -> None:
    place = Place("auto", 100.0, 1.0)
    node = place.file(1)
    place.ways.depart(node, BOTH)
    assert node.life is not None
    node.life.handle(Written(), 1.0)
    place.ways.cancelled(node)
    place.ways.send_held_back()
    assert place.peers.sent == []


async def test_without_peers_everything_is_direct_and_nothing_is_held() -> None:
    place = Place("auto")
    place.peers.chosen = ()
    node = place.file(1)
    assert place.ways.depart(node, BOTH) == BOTH
    assert await may_flush(place, node)
    assert place.keeping.recorder.drain_decisions() == []


# --- forecasts ------------------------------------------------------------------------------------


async def test_etas_follow_the_file() -> None:
    place = Place("both", replicate_s=3.0, flush_s=8.0)
    node = place.file(1)
    assert place.ways.etas(node) == (None, None)  # not on its way yet
    place.ways.depart(node, BOTH)
    assert place.ways.etas(node) == pytest.approx((3.0, 8.0), rel=0.05)
    place.acknowledge(node)
    replicated_s, durable_s = place.ways.etas(node)
    assert replicated_s == 0.0 and durable_s == pytest.approx(8.0, rel=0.05)
    place.commit(node)
    assert place.ways.etas(node) == (0.0, 0.0)
    assert node.life is not None
    node.life.handle(Written(), 2.0)
    assert place.ways.etas(node) == (None, None)
