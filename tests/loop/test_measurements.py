"""What is measured: in memory, on disk, across restarts, bounded; and the process that fits."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import trio

from cachexfs.durability.calibration import Correction
from cachexfs.durability.forecast import Model
from cachexfs.durability.latency.curve import lognormal
from cachexfs.durability.latency.prior import prior_fit
from cachexfs.durability.latency.sample import MEASURED_PHASES
from cachexfs.durability.paths import Decision
from cachexfs.durability.score import LEVELS
from cachexfs.durability.writing import WRITES
from cachexfs.measurements import keeper as keeping
from cachexfs.measurements import store as storing
from cachexfs.measurements.keeper import Keeper
from cachexfs.measurements.legs import Content, Legs
from cachexfs.measurements.openings import Opening
from cachexfs.measurements.record import Record, samples
from cachexfs.measurements.recorder import BURST, PACE_S, RUNNING_AT_MOST, Key, Recorder
from cachexfs.measurements.store import FILE_NAME, Store


class Clock:
    """Both clocks of a recorder, moved by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def wall(self) -> float:
        return 1e9 + self.now_s

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def recorder(clock: Clock) -> Recorder:
    return Recorder(0, clock.wall, clock.monotonic)


def record(number: int, **changes: object) -> Record:
    fields: dict[str, object] = {
        "id": number, "phase": "flush", "size_bytes": 10, "begin_s": float(number),
        "elapsed_s": 1.0, "state": "ended",
    }  # fmt: skip
    return Record(**{**fields, **changes})  # type: ignore[arg-type]


def fitted(**corrections: Correction) -> Model:
    """A model in which the priors have no say any more."""
    fits = [msgspec.structs.replace(prior_fit(phase), samples=100) for phase in MEASURED_PHASES]
    return Model(fits, corrections)


def drain(recorder: Recorder, *, running: bool) -> list[Record]:
    """As the keeper's thread gets them."""
    return [one.complete() for one in recorder.drain(running=running)]


# --- the recorder ---------------------------------------------------------------------------------


def test_a_phase_from_begin_to_end(recorder: Recorder, clock: Clock) -> None:
    key = Key("flush", 7, 1)
    recorder.begin(key, 1000, keep=True, job="j", forecast=lambda: lognormal(2.0, 0.5))
    clock.now_s += 3
    assert recorder.running(key) is not None and recorder.bytes_under_way("flush") == 1000
    recorder.end(key)
    (made,) = drain(recorder, running=True)
    assert (made.phase, made.size_bytes, made.elapsed_s, made.state) == ("flush", 1000, 3, "ended")
    assert made.begin_s == 1e9 + 100 and made.job == "j"
    assert len(made.quantiles) == len(LEVELS) and made.quantiles[3] == pytest.approx(2.0, rel=0.01)
    assert made.sample().censored is False and recorder.bytes_under_way("flush") == 0
    assert drain(recorder, running=True) == []


def test_what_came_while_it_was_under_way_is_noted(recorder: Recorder, clock: Clock) -> None:
    recorder.begin(Key("flush", 7, 1), 1000, keep=True)
    clock.now_s += 1
    recorder.begin(Key("flush", 8, 1), 300, keep=True)
    clock.now_s += 1
    recorder.end(Key("flush", 7, 1))
    (made,) = drain(recorder, running=False)
    assert made.behind_bytes == made.sample().behind_bytes == 300


def test_what_is_given_up_is_censored(recorder: Recorder, clock: Clock) -> None:
    recorder.begin(Key("flush", 7, 1), 1000, keep=True)
    clock.now_s += 5
    recorder.give_up(recorder.of(7))
    (made,) = drain(recorder, running=False)
    assert made.sample().censored and made.elapsed_s == 5
    assert made.forecast() is None


def test_what_is_still_running_is_seen_again_and_again(recorder: Recorder, clock: Clock) -> None:
    recorder.begin(Key("flush", 7, 1), 1000, keep=True)
    seen = []
    for _ in range(2):
        clock.now_s += 5
        seen += drain(recorder, running=True)
    assert [one.elapsed_s for one in seen] == [5, 10]
    assert {one.id for one in seen} == {1} and seen[0].state == "running"
    assert samples(seen)[1].censored


def test_one_that_begins_again_gives_the_first_up(recorder: Recorder) -> None:
    for _ in range(2):
        recorder.begin(Key("flush", 7, 1), 1000, keep=True)
    assert [one.state for one in drain(recorder, running=True)] == ["given up", "running"]
    assert recorder.bytes_under_way("flush") == 1000


def test_of_many_files_some_are_kept_and_the_bytes_of_all_are_counted(
    recorder: Recorder, clock: Clock
) -> None:
    for ino in range(2000):
        recorder.begin(Key("flush", ino, 1), 10, keep=recorder.is_due())
        clock.now_s += PACE_S / 16
    assert recorder.bytes_under_way("flush") == 20_000
    kept = drain(recorder, running=True)
    assert [one.begin_s for one in kept[:BURST]] == pytest.approx(
        [1e9 + 100 + i * PACE_S / 16 for i in range(BURST)]
    )
    assert BURST + 2000 / 16 - 2 <= len(kept) <= BURST + 2000 / 16 + 2 < RUNNING_AT_MOST


def test_a_capture_is_scored_for_the_size_it_turned_out_to_have(
    recorder: Recorder, clock: Clock
) -> None:
    recorder.begin(Key("capture", 7, 1), 0, keep=True)
    clock.now_s += 1
    recorder.end(Key("capture", 7, 1), 2_000_000_000)
    (made,) = drain(recorder, running=False)
    assert made.size_bytes == 2_000_000_000 and made.quantiles[3] == pytest.approx(1.0, rel=0.1)


def test_bytes_are_counted_by_peer(recorder: Recorder) -> None:
    recorder.begin(Key("replicate", 1, 1, "a"), 10, keep=False)
    recorder.begin(Key("replicate", 1, 1, "b"), 10, keep=False)
    recorder.end(Key("replicate", 1, 1, "a"))
    assert recorder.bytes_under_way("replicate", "a") == 0
    assert recorder.bytes_under_way("replicate", "b") == 10
    assert recorder.bytes_under_way("replicate") == 10
    recorder.end(Key("replicate", 99, 1, "a"))  # never began: nothing


# --- legs -----------------------------------------------------------------------------------------


class Held:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder


def test_the_way_of_a_file_on_both_ways(recorder: Recorder, clock: Clock) -> None:
    legs, content = Legs(Held(recorder), 1), Content(7, 1, 1000, "j")
    legs.writing(content)
    legs.captured(content)
    clock.now_s += 1
    legs.depart(content, "both", ("peer",))
    way = legs.way(7, 1, copies_missing=1)
    assert [leg.source for leg in way.replicas] == ["peer"]
    assert way.replicas[0].beside_bytes == 1000 == (way.flush.beside_bytes if way.flush else 0)
    clock.now_s += 2
    legs.acknowledged(7, 1, "peer")
    legs.replicated(7, 1)
    legs.copied(7, 1)
    way = legs.way(7, 1, copies_missing=0)
    assert way.flush is None and way.replicas == () and way.commit is not None
    clock.now_s += 1
    legs.committed(7, 1)
    made = {one.phase: one for one in drain(recorder, running=True)}
    took = {phase: one.elapsed_s for phase, one in made.items()}
    assert took == {
        "capture": 0, "replicate": 2, "flush": 2, "commit": 1, "replicated": 2, "safe": 2,
        "durable": 3,
    }  # fmt: skip
    assert all(one.quantiles for one in made.values())
    assert legs.way(7, 1, 1).commit is None


def test_a_flush_that_waits_for_its_replica_begins_when_it_may(
    recorder: Recorder, clock: Clock
) -> None:
    legs, content = Legs(Held(recorder), 1), Content(7, 1, 1000, "j")
    legs.depart(content, "replica", ("peer",))
    assert legs.way(7, 1, 1).flush_waits
    clock.now_s += 4
    legs.acknowledged(7, 1, "peer")
    legs.replicated(7, 1)
    legs.flush(7, 1, "replica")
    clock.now_s += 1
    way = legs.way(7, 1, 0)
    assert way.flush is not None and way.flush.elapsed_s == 1 and not way.flush_waits
    legs.flush(99, 1, "replica")  # nobody knows it: nothing


def test_a_write_is_measured_from_the_begin_of_its_opening(
    recorder: Recorder, clock: Clock
) -> None:
    recorder.model = fitted()
    legs, content = Legs(Held(recorder), 1, lambda: ("peer",)), Content(7, 1, 1000, "j")
    opening = Opening(clock.now_s, legs.traffic_now())
    clock.now_s += 0.5
    legs.writing(content)
    legs.opened(7, opening)
    clock.now_s += 1
    legs.captured(content)
    legs.depart(content, "both", ("peer",))
    clock.now_s += 2
    legs.acknowledged(7, 1, "peer")
    legs.replicated(7, 1)
    legs.copied(7, 1)
    clock.now_s += 4
    legs.committed(7, 1)
    made = {one.phase: one for one in drain(recorder, running=True)}
    whole = [made[WRITES[to]] for to in ("replicated", "safe", "durable")]
    assert [one.elapsed_s for one in whole] == [3.5, 3.5, 7.5]
    assert {one.begin_s for one in whole} == {made["opening"].begin_s} == {1e9 + 100}
    assert made["opening"].elapsed_s == 0.5 and made["opening"].quantiles
    for one in whole:
        assert one.quantiles == pytest.approx(one.composed) and one.size_bytes == 1000
    assert whole[2].composed[3] > made["durable"].composed[3]


def test_a_file_that_was_being_written_already_has_no_opening(
    recorder: Recorder, clock: Clock
) -> None:
    legs, content = Legs(Held(recorder), 1), Content(7, 1, 1000, "j")
    legs.writing(content)
    clock.now_s += 1
    legs.opened(7, Opening(clock.now_s, legs.traffic_now()))
    legs.opened(99, Opening(clock.now_s, legs.traffic_now()))  # nobody writes it: nothing
    assert [one.phase for one in drain(recorder, running=True)] == ["capture"]


def test_a_commit_begins_under_the_load_of_other_flushes(recorder: Recorder) -> None:
    legs = Legs(Held(recorder), 1)
    for ino in (1, 2):
        legs.depart(Content(ino, 1, 5 << 20, "j"), "both", ())
    legs.copied(1, 1)
    commit = recorder.running(Key("commit", 1, 1))
    assert commit is not None and commit.ahead_bytes == 5 << 20


def test_a_whole_way_is_forecast_as_earlier_ones_came_true(
    recorder: Recorder, clock: Clock
) -> None:
    legs, content = Legs(Held(recorder), 1), Content(7, 1, 1000, "j")
    recorder.model = fitted(durable=Correction(dict.fromkeys(range(-60, 60), (9.0,) * 7)))
    legs.depart(content, "direct", ())
    recorder.model.corrections = {}  # what is learned later changes nothing
    clock.now_s += 1
    legs.copied(7, 1)
    legs.committed(7, 1)
    made = {one.phase: one for one in drain(recorder, running=True)}
    durable = made["durable"]
    moved_s = [b - a for a, b in zip(durable.composed, durable.quantiles, strict=True)]
    assert moved_s == pytest.approx([9.0] * 7, rel=0.01)
    assert made["safe"].quantiles == pytest.approx(made["safe"].composed)
    outcome = durable.outcome()
    assert outcome is not None and outcome.quantiles == durable.composed


def test_what_the_priors_missed_teaches_nothing(recorder: Recorder) -> None:
    legs = Legs(Held(recorder), 1)
    legs.depart(Content(7, 1, 1000, "j"), "direct", ())
    legs.copied(7, 1)
    legs.committed(7, 1)
    made = {one.phase: one for one in drain(recorder, running=True)}
    assert made["durable"].quantiles and made["durable"].outcome() is None


# --- the store ------------------------------------------------------------------------------------


def test_records_come_back(tmp_path: Path) -> None:
    made = [record(1, quantiles=(1.0, 2.0)), record(2, phase="commit", job="j", source="peer")]
    store = Store(tmp_path / "m.db")
    store.save(made)
    store.save([record(2, phase="commit", elapsed_s=9.0)])
    assert store.last_id() == 2
    store.close()
    again = Store(tmp_path / "m.db", readonly=True)
    assert again.records() == [made[0], record(2, phase="commit", elapsed_s=9.0)]
    with pytest.raises(sqlite3.OperationalError):
        again.save(made)


def test_a_store_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storing, "KEPT", 50)
    monkeypatch.setattr(storing, "DECISIONS_KEPT", 10)
    store = Store(tmp_path / "m.db")
    for begin in range(1, 400, 100):
        store.save(record(i, phase=("flush", "commit")[i % 2]) for i in range(begin, begin + 100))
        store.save_decisions((float(i), "f", "{}") for i in range(30))
    kept = store.records()
    assert len(kept) == 100 and kept[0].id == 301
    assert len(store.decisions()) == 10


def test_the_newest_come_in_the_order_of_their_ends(tmp_path: Path) -> None:
    store = Store(tmp_path / "m.db")
    took = {1: 1.0, 2: 50.0, 3: 1.0, 4: 60.0, 5: 1.0}
    store.save(record(i, phase="durable", elapsed_s=took_s) for i, took_s in took.items())
    store.save([record(6), record(7, phase="durable", state="running")])
    assert [one.id for one in store.newest("durable", 3, 0.0)] == [3, 5, 4]
    assert [one.id for one in store.newest("durable", 3, 4.5)] == [5]


def test_what_was_running_when_the_daemon_died_is_censored(tmp_path: Path) -> None:
    store = Store(tmp_path / "m.db")
    store.save([record(1, state="running", elapsed_s=4.0)])
    store.give_up_running()
    assert samples(store.records())[0].censored


def test_boots_that_end_without_order_are_failures(tmp_path: Path) -> None:
    store = Store(tmp_path / "m.db")
    store.alive("one", 0.0)
    store.alive("one", 50.0)
    store.alive("two", 100.0)
    store.alive("two", 150.0, orderly=True)
    store.alive("three", 200.0)
    lives = store.lifetimes()
    assert [(one.begin_s, one.seen_s, one.failed) for one in lives] == [
        (0.0, 50.0, True), (100.0, 150.0, False), (200.0, 200.0, False),
    ]  # fmt: skip


def test_fits_come_back_and_unreadable_ones_do_not(tmp_path: Path) -> None:
    store = Store(tmp_path / "m.db")
    store.save_fits([prior_fit("flush"), prior_fit("commit")])
    with sqlite3.connect(tmp_path / "m.db") as other:
        other.execute("UPDATE fit SET fit = '{}' WHERE phase = 'flush'")
    assert store.fits() == [prior_fit("commit")]


# --- the keeper -----------------------------------------------------------------------------------


def test_measurements_survive_a_restart(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path)
    keeper.open()
    keeper.recorder.begin(Key("flush", 1, 1), 10, keep=True)
    keeper.recorder.end(Key("flush", 1, 1))
    keeper.recorder.begin(Key("flush", 2, 1), 10, keep=True)
    keeper.recorder.decided("f", Decision("both", "why", 1, 0.95))
    keeper.close(orderly=True)
    again = Keeper(tmp_path)
    again.open()
    again.recorder.begin(Key("flush", 3, 1), 10, keep=True)
    again.close(orderly=True)
    found = Store(tmp_path / FILE_NAME).records()
    assert [(one.id, one.state) for one in found] == [(1, "ended"), (2, "given up"), (3, "running")]


def test_a_damaged_store_is_put_aside(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"no database at all" * 100)
    keeper = Keeper(tmp_path)
    keeper.open()
    keeper.close(orderly=True)
    assert (tmp_path / FILE_NAME).with_suffix(".damaged").exists()
    assert Store(tmp_path / FILE_NAME).last_id() == 0


@pytest.mark.trio
async def test_what_came_true_corrects_later_forecasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this daemon, and in the next one."""
    monkeypatch.setattr(keeping, "CORRECT_EVERY_S", 0.02)
    monkeypatch.setattr(keeping, "WRITE_EVERY_S", 0.01)
    keeper = Keeper(tmp_path)
    keeper.open()
    keeper.recorder.model = fitted()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keeper.run)
            for ino in range(60):
                key = Key("durable", ino, 1)
                keeper.recorder.begin(key, 10, keep=True, forecast=lambda: lognormal(1e-5, 0.1))
                keeper.recorder.end(key)
            with trio.fail_after(20):
                while not keeper.recorder.corrections:  # noqa: ASYNC110 - it tells nobody
                    await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
    finally:
        keeper.close(orderly=True)
    assert keeper.recorder.corrections["durable"].shifts
    again = Keeper(tmp_path)
    again.open()
    again.close(orderly=True)
    assert again.recorder.corrections == keeper.recorder.corrections


@pytest.mark.trio
async def test_the_daemon_has_its_measurements_fitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "_LOOK_EVERY_S", 0.05)
    monkeypatch.setattr(keeping, "WRITE_EVERY_S", 0.01)
    keeper = Keeper(tmp_path)
    keeper.open()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keeper.run)
            for ino in range(40):
                keeper.recorder.begin(Key("flush", ino, 1), 10_000_000, keep=True)
                keeper.recorder.end(Key("flush", ino, 1))
            with trio.fail_after(60):
                while not keeper.fitted_s:  # noqa: ASYNC110 - it tells nobody
                    await trio.sleep(0.05)
            nursery.cancel_scope.cancel()
    finally:
        keeper.close(orderly=True)
    assert keeper.recorder.model.fit_for("flush").samples == 40


def test_a_fit_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cachexfs.measurements.fitter", str(tmp_path / "none" / "m")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0 and "unable to open database" in done.stderr


def test_a_store_of_an_earlier_version_is_taken_up(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    with sqlite3.connect(path) as old:
        columns = storing.SCHEMA.split("CREATE TABLE IF NOT EXISTS record (")[1].split(");")[0]
        was = columns.split(", behind_bytes")[0]
        assert was != columns
        old.execute(f"CREATE TABLE record ({was})")
        row = "1, 'flush', 10, 1.0, 1.0, 'ended', '', '', '', 0, 0, '[]'"
        old.execute(f"INSERT INTO record VALUES ({row})")
    old.close()
    reader = Store(path, readonly=True)  # by a program that is newer than the daemon
    assert [one.id for one in reader.records()] == [1]
    reader.close()
    store = Store(path)
    store.save([record(2, behind_bytes=5, composed=(1.0, 2.0))])
    assert [one.behind_bytes for one in store.records()] == [0, 5]
    assert [one.composed for one in store.records()] == [(), (1.0, 2.0)]
    store.close()
