"""The tables of docs/replay.md: their places, what they say, and what is kept of a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tools.replay.__main__ import replay
from tools.replay.cache import ROOT, Cache
from tools.replay.case import Case
from tools.replay.cells import CELLS, SWEEP, TABLES
from tools.replay.document import futile_shares, put, summary
from tools.replay.errors import OptionError

CASE = Case("synthetic:10", 8, "const:60")


def _row(policy: str, mean_h: float, futile: int = 0) -> dict[str, Any]:
    return {
        "policy": policy, "jct_mean_s": 3600 * mean_h, "jct_p50_s": 1800 * mean_h,
        "jct_p99_s": 36000 * mean_h, "futile": futile, "barren": futile + 1, "preemptions": 1000,
        "futile_gpu_s": 13, "used_gpu_s": 100,
    }  # fmt: skip


def test_every_table_has_its_place_in_the_document() -> None:
    text = (ROOT / "docs" / "replay.md").read_text()
    for name in (*(table.name for table in TABLES), "sweep", "scaling"):
        assert f"<!-- {name} -->\n" in text


def test_the_cells_are_those_that_must_be_shown() -> None:
    philly = [case for name, case in CELLS.items() if name.startswith("philly")]
    assert {(case.gpus, case.setup) for case in philly} == {
        (gpus, f"const:{setup}") for gpus in (384, 512) for setup in (60, 300, 1200)
    }
    assert len(CELLS) == 14 and len(SWEEP) == 33


def test_only_what_stands_between_the_marks_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- a -->\nold\n<!-- end -->\n<!-- b -->\nother\n<!-- end -->\n")
    put(page, "a", "new \\1\n")
    assert page.read_text() == (
        "before\n<!-- a -->\nnew \\1\n<!-- end -->\n<!-- b -->\nother\n<!-- end -->\n"
    )
    with pytest.raises(OptionError, match="no place marked <!-- c -->"):
        put(page, "c", "")


def test_the_summary_compares_with_the_best_of_each_kind() -> None:
    rows = {
        "cell": {
            row["policy"]: row
            for row in (
                _row("sjf", 4.0), _row("srsf/eager", 2.0, futile=40), _row("las/eager", 3.0, 50),
                _row("srsf/nosetup", 2.5), _row("lazer", 2.0),
            )
        }
    }  # fmt: skip
    line = summary(rows, {"cell": "0.90 (0.95)"}, "lazer").splitlines()[2]
    fields = [field.strip() for field in line.strip("|").split("|")]
    assert fields[:7] == [
        "cell", "0.90 (0.95)", "2.00 / 1.00 / 20.00", "srsf/eager", "1.000", "1.000", "1.000",
    ]  # fmt: skip
    assert fields[7:] == ["srsf/nosetup", "0.800", "0 : 40", "1 : 41", "1,000 : 1,000"]


def test_the_futile_share_is_of_preemptions_and_of_gpu_time() -> None:
    rows = {"cell": {"las/eager": _row("las/eager", 3.0, futile=660)}}
    assert "| cell | 1.00 | 66 %, 13.00 % |" in futile_shares(rows, {"cell": "1.00"})


def test_a_row_is_found_again_under_the_same_conditions_only(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    assert cache.find(CASE, "lazer") is None
    cache.keep(CASE, "lazer", {"jobs": 10})
    assert cache.find(CASE, "lazer") == {"jobs": 10}
    assert cache.find(CASE, "fifo") is None
    assert cache.find(replace(CASE, checkpoint_s=1800), "lazer") is None


def test_what_is_to_be_done_is_listed(tmp_path: Path) -> None:
    arguments = ["tables", "--list", "--only", "known/muri-1*/lazer", "--cache", str(tmp_path),
                 "--traces", str(tmp_path)]  # fmt: skip
    result = CliRunner().invoke(replay, arguments)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == ["known/muri-1-128-1200/lazer"]
