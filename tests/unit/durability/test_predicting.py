"""The experiment that scores forecasts on real mounts: what of it is pure."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import pytest

from cachexfs.control.foresight import Knowledge
from cachexfs.durability.latency.fit import PhaseFit
from cachexfs.durability.latency.fitting import fit_phase
from cachexfs.durability.latency.sample import Sample
from cachexfs.durability.lost_work import Loss
from cachexfs.durability.paths import Traffic
from cachexfs.durability.writing import way_of
from cachexfs.errors import UsageError
from cachexfs.measurements.record import Record
from tools.experiments.predicting.foreseeing import TARGETS, Foreseen, foresee
from tools.experiments.predicting.held import Held, as_table, claims, floor, rows
from tools.experiments.predicting.pages import with_table
from tools.experiments.predicting.replay import DEATHS, Save, lost_in, verdict
from tools.experiments.predicting.rivals import RIVALS, Timed, guesses
from tools.experiments.predicting.site import Written
from tools.experiments.predicting.sweep import Cell, total
from tools.experiments.predicting.sweep import as_table as sweep_table
from tools.experiments.predicting.workload import (
    MIB,
    UNIQUE_BYTES,
    Sizes,
    sizes_without_end,
    spells,
    writes,
)
from tools.experiments.predicting.writes import Log, Plan, Seen, held

SIZES = Sizes(4 * MIB, 16 * MIB)

# --- the workload ---------------------------------------------------------------------------------


def test_the_same_seed_writes_the_same() -> None:
    first, again = (list(itertools.islice(writes(1, SIZES, 0.3), 300)) for _ in range(2))
    other = list(itertools.islice(writes(2, SIZES, 0.3), 300))
    assert first == again != other
    assert len({write.size_bytes for write in first}) == 300
    assert all(MIB <= write.size_bytes < 18 * MIB for write in first)
    for write, following in itertools.pairwise(first):
        assert write.sync or following.think_s == 0.0  # shards come one after the other
    assert 0.1 < sum(not write.sync for write in first) / 300 < 0.4


def test_a_second_run_differs_by_some_kilobytes_only() -> None:
    first, later = (list(itertools.islice(writes(1, SIZES, 0.3, n), 50)) for n in (0, 200))
    for one, other in zip(first, later, strict=True):
        assert other.size_bytes - one.size_bytes == 200 * UNIQUE_BYTES


def test_checkpoints_and_spells_have_no_end() -> None:
    assert len(set(itertools.islice(sizes_without_end(1, SIZES), 100))) == 100
    for spell in itertools.islice(spells(1, (2, 4), (1, 2)), 20):
        assert 2 <= spell.pause_s <= 4 and 1 <= spell.busy_s <= 2


def test_the_runs_of_a_plan_take_its_minutes() -> None:
    runs = Plan(minutes=10).runs()
    assert sum(lasts_s for *_, lasts_s in runs) == pytest.approx(600)
    assert [run[:2] for run in runs] == [
        ("learning", 0), ("steady", 0), ("steady", 1), ("bursts", 0), ("bursts", 1)
    ]  # fmt: skip


# --- what is forecast of a write ------------------------------------------------------------------


def fitted(phase: str, rate: float) -> PhaseFit:
    sizes = [(i % 5 + 1) * 4 * MIB for i in range(60)]
    return fit_phase(
        [
            Sample(
                phase=phase, size_bytes=size, begin_s=10.0 * i,
                elapsed_s=size / rate * (1 + 0.02 * (i % 3)), source="peer",
            )
            for i, size in enumerate(sizes)
        ]
    )  # fmt: skip


def known(**changes: object) -> Knowledge:
    fields: dict[str, object] = {
        "now_s": 1e9, "store": "/nowhere", "fitted_s": 1e9, "path": "both", "quantile": 0.95,
        "copies_wanted": 1, "peers": ["peer"], "nodes": 2, "mtbf_s": None, "restart_s": 60.0,
        "fits": [fitted("capture", 2e9), fitted("replicate", 50e6), fitted("flush", 25e6),
                 fitted("commit", 1e9)],
        "lifetimes": [], "pending": [], "traffic": Traffic((("peer", 0),), 0),
    }  # fmt: skip
    return Knowledge(**{**fields, **changes})  # type: ignore[arg-type]


def test_a_write_is_forecast_before_it_begins() -> None:
    made = foresee(known(), 10 * MIB)
    medians = {target: made[target].quantiles[3] for target in TARGETS}
    assert medians["replicated"] == pytest.approx(0.22, rel=0.1)
    assert medians["durable"] == pytest.approx(0.44, rel=0.1)
    assert medians["returned"] == pytest.approx(medians["replicated"], rel=0.05)


def test_what_is_under_way_is_waited_for() -> None:
    busy = known(traffic=Traffic((("peer", 40 * MIB),), 0))
    assert (
        foresee(busy, 10 * MIB)["replicated"].quantiles[3]
        > 2 * foresee(known(), 10 * MIB)["replicated"].quantiles[3]
    )
    way = way_of(10 * MIB, busy.traffic, 1)
    assert way.flush is not None and way.flush.beside_bytes == 50 * MIB


def test_without_peers_only_the_shared_file_system_counts() -> None:
    made = foresee(known(traffic=Traffic(), peers=[]), 10 * MIB)
    assert set(made) == {"returned", "durable"}
    assert made["returned"] == made["durable"]


# --- the rivals -----------------------------------------------------------------------------------


def test_rivals_know_what_has_ended_and_nothing_else() -> None:
    series = [Timed(0, 10 * MIB, 1.0), Timed(0.5, 20 * MIB, 2.0), Timed(3, 30 * MIB, 9.0)]
    made = guesses(series)
    assert made[0] == made[1] == {}
    assert set(made[2]) == set(RIVALS)
    assert made[2]["last"] == 2.0 and made[2]["mean"] == 1.5
    assert made[2]["linear"] == pytest.approx(3.0)
    assert made[2]["ewma"] == pytest.approx(1.3)


def test_a_line_through_one_size_is_the_mean() -> None:
    series = [Timed(i, MIB, 1.0 + i / 10) for i in range(0, 6, 2)]
    assert guesses(series)[2]["linear"] == pytest.approx(1.1)


# --- held against what was seen -------------------------------------------------------------------


def one_held(number: int, run: int, seen_s: float, median_s: float = 1.0) -> Held:
    spread = (0.8, 0.85, 0.95, 1.0, 1.05, 1.15, 1.2)
    return Held(
        profile="steady", run=run, number=number, target="durable", size_bytes=MIB, at_s=number,
        quantiles=tuple(median_s * each for each in spread), seen_s=seen_s,
        rivals=dict.fromkeys(RIVALS, 2.0),
    )  # fmt: skip


def test_the_score_beside_the_rivals_and_the_floor() -> None:
    made = [one_held(0, 0, 1.1), one_held(0, 1, 1.0), one_held(1, 0, 0.9), one_held(2, 0, 1.0)]
    (row,) = rows(made)
    assert row.score.forecasts == 4 and row.floor == pytest.approx(0.1)
    assert row.is_best and not row.is_honest  # all inside: wider than it says
    assert "| steady | durable | 4 | 50 ms | **5.1 %** | 101.0 % |" in as_table([row])
    assert floor([one_held(0, 0, 1.0)]) is None


def test_what_is_claimed_is_said_to_be_held_or_not() -> None:
    made = [
        msgspec.structs.replace(one_held(i, 0, 1.0 + i / 50), target="returned") for i in range(9)
    ]
    (said,) = claims(rows(made))
    assert said.startswith("- steady: 7.2 % of 9 writes; at most 7.1 %: **not held**; better")
    assert "predictor: held; the 90 % interval covers 85 to 95 %: held" in said


def test_a_log_becomes_forecasts_by_the_size_of_each_write() -> None:
    log = Log()
    quantiles = (0.8, 0.85, 0.95, 1.0, 1.05, 1.15, 1.2)
    for number, write in enumerate(itertools.islice(writes(1, SIZES, 0.3), 30)):
        begin_s = 1e9 + 10 * number
        written = Written(begin_s, begin_s + 0.9)
        foreseen = dict.fromkeys(TARGETS, Foreseen(quantiles, (1.0,) * 7))
        log.seen.append(Seen("steady", 0, number, write, written, foreseen))
        for phase, took_s in (("capture", 0.1), ("replicate", 0.8), ("durable", 1.9)):
            log.measured.append(
                Record(
                    id=0, phase=phase, size_bytes=write.size_bytes, begin_s=begin_s + 0.1,
                    elapsed_s=took_s, state="ended", quantiles=quantiles,
                )
            )  # fmt: skip
    made = held(log)
    seen = {target: {one.seen_s for one in made if one.target == target} for target in TARGETS}
    assert {round(s, 3) for s in seen["durable"]} == {2.0}
    assert {round(s, 3) for s in seen["replicated"]} == {0.9}
    count = {target: sum(one.target == target for one in made) for target in TARGETS}
    assert count["durable"] == 30 > count["returned"] == sum(s.write.sync for s in log.seen)
    assert {one.target for one in made} == {*TARGETS, "capture", "replicate"}


def test_an_opening_is_of_the_write_in_whose_time_it_began() -> None:
    log, seven = Log(), (0.1,) * 7
    for number, write in enumerate(itertools.islice(writes(1, SIZES, 0.3), 3)):
        written = Written(10.0 * number, 10.0 * number + 2.0)
        log.seen.append(Seen("steady", 0, number, write, written, {}))
    log.measured = [
        Record(id=0, phase="opening", size_bytes=0, begin_s=begin_s, elapsed_s=0.1, state="ended",
               quantiles=seven)
        for begin_s in (9.9995, 21.0, 25.0)  # the last is of nobody's write
    ]  # fmt: skip
    assert [(one.target, one.number) for one in held(log)] == [("opening", 1), ("opening", 2)]


def test_what_was_not_corrected_stands_beside_it() -> None:
    made = [msgspec.structs.replace(one_held(i, 0, 1.1), composed=(0.5,) * 7) for i in range(4)]
    (row,) = rows(made)
    assert row.score.coverage["90"] == 1.0 and row.composed.coverage["90"] == 0.0
    assert as_table([row]).splitlines()[2].endswith("| 0 / 0 / 0, 300 ms |")


# --- deaths ---------------------------------------------------------------------------------------


def test_a_death_loses_the_time_since_the_last_safe_save_began() -> None:
    saves = [Save(10.0 * i, 10.0 * i + 4.0) for i in range(50)]
    lost = lost_in(saves, 100.0, 480.0, seed=1)
    assert len(lost) == DEATHS and 4.0 <= min(lost) < max(lost) < 14.0
    assert sum(lost) / DEATHS == pytest.approx(9.0, abs=0.4)


def test_a_verdict_holds_the_mean_against_its_interval() -> None:
    saves = [Save(10.0 * i, 10.0 * i + 4.0) for i in range(50)]
    good = verdict("replica", Loss(9.0, 2.9, 13.5), saves, since_s=95.0)
    assert good.held and good.saves == 39 and good.below_q95 == pytest.approx(0.95, abs=0.03)
    assert not verdict("direct", Loss(8.0, 2.9, 13.5), saves, since_s=95.0).held


# --- the sweep ------------------------------------------------------------------------------------


def cell(replica_s: float, direct_s: float, both_s: float, *taken: str) -> Cell:
    return Cell(
        peers_mbit=100, pfs_mbit=200, ahead=0, taken=list(taken), auto_s=[1.0] * len(taken),
        safe_s={"replica": [replica_s], "direct": [direct_s], "both": [both_s]},
    )  # fmt: skip


def test_right_is_what_no_other_path_beats_by_more_than_a_tenth() -> None:
    made = cell(1.0, 2.0, 1.05, "replica", "both", "direct")
    assert made.counts and made.best == "replica" and made.right == 2
    assert not cell(1.0, 1.05, 1.0, "replica").counts


def test_a_cell_counts_where_only_going_both_ways_is_slow() -> None:
    made = cell(1.0, 1.0, 2.0, "both", "direct")
    assert made.counts and made.right == 1


def test_only_cells_in_which_the_ways_differ_count() -> None:
    cells = [cell(1.0, 2.0, 1.0, "replica", "replica"), cell(1.0, 1.05, 1.0, "direct")]
    made = total(cells)
    assert (made.cells, made.decisions, made.right, made.share) == (1, 2, 2, 1.0)
    assert "2 of 2 decisions right (100.0 %) in the 1 of 2 cells" in sweep_table(cells)


# --- the page -------------------------------------------------------------------------------------


def test_a_table_goes_between_its_markers() -> None:
    page = "a\n<!-- predict writes: begin -->\nold\n<!-- predict writes: end -->\nb\n"
    made = with_table(page, "writes", "| new |")
    assert made == page.replace("old", "| new |")
    with pytest.raises(UsageError, match="predict paths"):
        with_table(page, "paths", "| new |")


def test_the_page_has_a_place_for_each_table() -> None:
    page = (Path(__file__).parents[3] / "docs/durability.md").read_text()
    for part in ("writes", "paths", "deaths"):
        assert "x" in with_table(page, part, "x")
