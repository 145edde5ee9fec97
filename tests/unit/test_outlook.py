"""The forecast of a mount, from made-up measurements: history, numbers, text."""

from __future__ import annotations

import json

import msgspec
import pytest

from cachexfs.control.foresight import Knowledge, PendingFile
from cachexfs.durability.forecast import Leg, Model, Way
from cachexfs.durability.latency.fitting import fit_all
from cachexfs.durability.paths import Decision
from cachexfs.durability.score import LEVELS
from cachexfs.measurements.record import Record, samples
from cachexfs.outlook.compute import summarize
from cachexfs.outlook.history import history, saved_files, sizes_of, typical_size, usual_save_s
from cachexfs.outlook.text import of_summary, span

MB = 1_000_000
SHARDS = 4
STEPS = 30
EVERY_S = 60.0


def run(steps: int = STEPS) -> list[Record]:
    """A job that saves four shards of 100 MB each minute: 0.4 s in RAM, 1 s to the peer, 5 s on."""
    made: list[Record] = []

    def add(phase: str, begin_s: float, took_s: float, **more: object) -> None:
        wobble = 1 + 0.1 * ((len(made) * 7) % 11 - 5) / 5
        fields: dict[str, object] = {
            "id": len(made) + 1, "phase": phase, "size_bytes": 100 * MB, "begin_s": begin_s,
            "elapsed_s": took_s * wobble, "state": "ended", "job": "j",
            "quantiles": tuple(took_s * (0.5 + p) for p in LEVELS),
        }  # fmt: skip
        made.append(Record(**{**fields, **more}))  # type: ignore[arg-type]

    for step in range(steps):
        for shard in range(SHARDS):
            at_s = step * EVERY_S + shard * 0.5
            add("capture", at_s, 0.4)
            at_s += made[-1].elapsed_s
            add("replicate", at_s, 1.0, source="peer")
            add("flush", at_s, 5.0)
            add("commit", at_s + 5.0, 0.1)
            add("safe", at_s, 1.0)
            add("durable", at_s, 5.1)
    return made


RECORDS = run()
NOW_S = STEPS * EVERY_S


def known(**changes: object) -> Knowledge:
    flush = Leg("flush", 100 * MB, 2.0)
    way = Way(1, (Leg("replicate", 100 * MB, 0.5, source="peer"),), flush, Leg("commit", 100 * MB))
    pending = [
        PendingFile(f"step-30/shard-{i}", "captured", 100 * MB, "j", NOW_S - 1, way)
        for i in range(SHARDS)
    ]
    fields: dict[str, object] = {
        "now_s": NOW_S, "store": "/nowhere", "fitted_s": NOW_S, "path": "auto", "quantile": 0.95,
        "copies_wanted": 1, "peers": ["peer"], "nodes": 4, "mtbf_s": 86400.0, "restart_s": 60.0,
        "fits": [], "lifetimes": [], "pending": pending,
    }  # fmt: skip
    return Knowledge(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def model() -> Model:
    return Model(fit_all(samples(RECORDS)))


def test_checkpoints_are_found_in_the_records() -> None:
    made = history(RECORDS)
    assert len(made) == STEPS
    assert {one.files for one in made} == {SHARDS} and made[0].size_bytes == 400 * MB
    assert made[5].begin_s == pytest.approx(5 * EVERY_S)
    assert usual_save_s(made) == pytest.approx(1.9, abs=0.1)
    assert made[0].safe_s == pytest.approx(2.9, abs=0.2)
    assert sizes_of(RECORDS, made[-1]) == [100 * MB] * SHARDS
    assert typical_size(RECORDS, "flush") == 100 * MB


def test_a_file_whose_capture_was_not_measured_begins_when_it_settled() -> None:
    alone = [record for record in RECORDS if record.phase == "safe"]
    assert [file.begin_s for file in saved_files(alone)] == [record.begin_s for record in alone]


def test_the_summary(model: Model) -> None:
    made = summarize("/mnt", known(), model, RECORDS, [Decision("replica", "r", 1, 0.95)])
    assert made.checkpoint is not None and made.checkpoint.files == SHARDS
    assert made.checkpoint.path == "step-30/(4 files)"
    assert made.checkpoint.safe is not None and made.checkpoint.durable is not None
    assert 0.3 < made.checkpoint.safe.median_s < 1.0 < made.checkpoint.durable.median_s < 5.0
    assert made.checkpoint.safe_by["60"] > 0.99
    assert made.lost_work.interval_s == pytest.approx(EVERY_S, rel=0.02)
    assert made.lost_work.now_s == pytest.approx(EVERY_S, rel=0.05)
    losses = made.lost_work.at_random
    assert 31 < losses["replica"].mean_s < losses["direct"].mean_s < 60
    assert made.intervals is not None and made.intervals.mtbf_s == 86400 / 4
    assert made.recommended.path == "replica"
    assert {one.phase for one in made.score} == {
        "capture", "replicate", "flush", "commit", "safe", "durable"
    }  # fmt: skip
    assert json.loads(json.dumps(msgspec.to_builtins(made)))["schema"] == 1


def test_the_screen_has_it_all(model: Model) -> None:
    screen = of_summary(summarize("/mnt", known(), model, RECORDS, [], ["a note"]))
    for word in (
        "replicate", "checkpoint", "step-30/shard-0", "lost work now", "young", "daly",
        "simulated", "path              replica", "past forecasts", "note: a note",
    ):  # fmt: skip
        assert word in screen, word
    assert all(len(line) <= 132 for line in screen.splitlines())


def test_without_peers_and_without_anything_on_its_way(model: Model) -> None:
    quiet = known(peers=[], pending=[])
    made = summarize("/mnt", quiet, model, RECORDS, [])
    assert made.recommended.path == "direct" and made.recommended.reason == "there are no peers"
    assert set(made.lost_work.at_random) == {"direct"}
    assert "nothing: everything is durable" in of_summary(made)


def test_a_file_that_waits_for_nothing_known(model: Model) -> None:
    open_file = PendingFile("log", "open", 0, "j", 0.0, Way())
    made = summarize("/mnt", known(pending=[open_file]), model, RECORDS, [])
    assert made.checkpoint is None and made.pending[0].safe is None
    assert "log" in of_summary(made)


def test_spans_read_well() -> None:
    assert [span(s) for s in (None, 0.0123, 1.234, 75, 4000, 400_000)] == [
        "-", "12.3 ms", "1.23 s", "1 min 15 s", "1 h 07 min", "4.63 days",
    ]  # fmt: skip
