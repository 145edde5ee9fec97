"""The command: what it writes, that it writes it again, and how it fails."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lazerd.engine import Engine
from lazerd.model.actions import Action
from lazerd.model.events import Event, SetupEnded
from tests.replay.traces_as_published import PHILLY_TABLE
from tools.replay import case
from tools.replay.__main__ import replay
from tools.replay.measures import KEYS

SYNTHETIC = ["--trace", "synthetic:400", "--gpus", "48", "--setup", "const:600"]
POLICIES = "fifo,srsf/eager,srsf/nosetup,lazer"


def _called(*arguments: str) -> Result:
    return CliRunner().invoke(replay, list(arguments))


def _replayed(out: Path, *arguments: str) -> list[dict[str, Any]]:
    result = _called(*SYNTHETIC, "--out", str(out), *arguments)
    assert result.exit_code == 0, result.output
    rows: list[dict[str, Any]] = json.loads((out / "results.json").read_text())
    return rows


def test_results_have_the_keys_of_the_contract(tmp_path: Path) -> None:
    rows = _replayed(tmp_path, "--policies", POLICIES, "--no-figures", "--checkpoint", "1800")
    assert [row["policy"] for row in rows] == POLICIES.split(",")
    for row in rows:
        assert tuple(row) == KEYS
        assert row["jobs"] == 400
        assert row["checkpoint_s"] == 1800
        assert row["futile"] <= row["barren"] <= row["preemptions"]
        kept_gpu_s = (
            row["used_gpu_s"] - row["setup_gpu_s"] - row["futile_gpu_s"] - row["lost_gpu_s"]
        )
        assert kept_gpu_s == rows[0]["used_gpu_s"] - rows[0]["setup_gpu_s"]  # the work of the trace
        assert 0 < row["utilisation"] <= 1
    with (tmp_path / "results.csv").open() as table:
        assert [line["policy"] for line in csv.DictReader(table)] == POLICIES.split(",")
    assert "offered load" in (tmp_path / "table.txt").read_text()


def test_the_same_seed_gives_the_same_bytes_in_other_processes(tmp_path: Path) -> None:
    arguments = ("--policies", "srsf/nosetup,lazer", "--no-figures", "--setup", "lognorm:300:1",
                 "--estimate", "noise:1", "--seed", "7")  # fmt: skip
    here = _replayed(tmp_path / "here", *arguments)
    there = _replayed(tmp_path / "there", *arguments, "--jobs", "2")
    for name in ("results.csv", "table.txt"):
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes()
    for row in (*here, *there):
        del row["wall_s"]
    assert here == there


def test_an_event_log_replays_to_the_same_state(tmp_path: Path) -> None:
    log = tmp_path / "log"
    _replayed(tmp_path / "out", "--policies", "lazer", "--no-figures", "--log", str(log))
    first, second = _called("again", str(log), "--validate"), _called("again", str(log))
    assert first.exit_code == 0, first.output
    assert first.output == second.output
    assert "400 Submitted" in first.output


def test_an_event_log_that_was_changed_is_found_out(tmp_path: Path) -> None:
    log = tmp_path / "log"
    _replayed(tmp_path / "out", "--policies", "srsf/eager", "--no-figures", "--log", str(log))
    lines = log.read_text().splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if '"SetupEnded"' in line)
    lines[at] = lines[at].replace('"answer":"', '"answer":"0')
    log.write_text("".join(lines))
    changed = _called("again", str(log))
    assert changed.exit_code == 2
    assert f"{log}, line {at + 1}: at " in changed.output
    assert "otherwise than it did" in changed.output


class _Broken(Engine):
    """Fails at the first end of a set-up."""

    def handle_all(self, events: Iterable[Event], now_s: float) -> tuple[Action, ...]:
        given = tuple(events)
        if any(isinstance(event, SetupEnded) for event in given):
            raise RuntimeError("broken")
        return super().handle_all(given, now_s)


def test_a_log_holds_what_the_engine_failed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    monkeypatch.setattr(case, "Engine", _Broken)
    arguments = ("--policies", "fifo", "--out", str(tmp_path / "out"), "--log", str(log))
    with pytest.raises(RuntimeError, match="broken"):
        CliRunner().invoke(replay, [*SYNTHETIC, *arguments], catch_exceptions=False)
    assert '"SetupEnded"' in log.read_text().splitlines()[-1]


def test_a_log_that_is_none(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("{}\n")
    result = _called("again", str(log))
    assert result.exit_code == 2
    assert "line 1: it is not the head of an event log" in result.output


def test_invariants_hold_at_every_instant(tmp_path: Path) -> None:
    _replayed(tmp_path, "--policies", POLICIES, "--no-figures", "--validate", "--limit", "150")


def test_figures_are_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    _replayed(tmp_path, "--policies", "srsf/eager,lazer")
    for name in ("waiting", "lost", "utilisation", "excerpt"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_jobs_that_never_fit_are_left_out(tmp_path: Path) -> None:
    trace = tmp_path / "philly.csv"
    trace.write_text(PHILLY_TABLE)
    out = tmp_path / "out"
    result = _called("--trace", str(trace), "--gpus", "4", "--policies", "fifo", "--no-figures",
                     "--out", str(out))  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "1 jobs never fit on 4 GPUs and are left out" in result.output
    assert json.loads((out / "results.json").read_text())[0]["jobs"] == 1


def test_nodes_keep_gangs_together(tmp_path: Path) -> None:
    rows = _replayed(tmp_path, "--policies", "srsf/eager,lazer", "--node-gpus", "8",
                     "--no-figures", "--validate", "--limit", "150")  # fmt: skip
    assert [row["jobs"] for row in rows] == [150, 150]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--trace", "no.csv"], "no.csv: it cannot be read: No such file"),
        (["--trace", "synthetic:many"], "not synthetic:NUMBER_OF_JOBS"),
        (["--setup", "const"], "--setup const: not const:SECONDS"),
        (["--estimate", "noise:x"], "--estimate noise:x: not oracle"),
        (["--policies", "srsf/never"], "--policies: "),
        (["--policies", ","], "--policies names none"),
        (["--since", "monday"], "--since monday: neither"),
        (["--node-gpus", "7"], "48 GPUs are not whole nodes of 7"),
        (["--policies", "fifo,lazer", "--log", "log"], "--log takes the log of one policy"),
        (["--min-gpus", "1000"], "no job fits the selection"),
        (["--gpus", "0"], "--gpus"),
        (["--compress", "0"], "--compress"),
        (["--format", "csv"], "--format"),
    ],
)
def test_a_bad_option_ends_with_one_sentence_and_2(
    tmp_path: Path, arguments: list[str], says: str
) -> None:
    result = _called(*SYNTHETIC, "--out", str(tmp_path / "out"), *arguments)
    assert result.exit_code == 2, result.output
    assert says in result.output


def test_what_is_needed_is_said() -> None:
    result = _called("--gpus", "8")
    assert result.exit_code == 2
    assert "--trace, --gpus and --out are needed" in result.output
