"""The experiment that scores forecasts, at its shortest: it runs, and leaves nothing behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools.hosts import netns, preflight

CHECKOUT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.fuse
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("part", "key"), [("writes", "forecasts"), ("paths", "cells"), ("deaths", "verdicts")]
)
def test_a_part_runs_and_leaves_nothing(part: str, key: str, tmp_path: Path) -> None:
    if sentence := preflight.missing("gluster"):
        pytest.skip(sentence)
    before = set(netns.existing("cachexfs-"))
    command = [sys.executable, "-m", "tools.experiments.predicting", part, "--quick"]
    done = subprocess.run(
        [*command, "--out", tmp_path],
        capture_output=True, text=True, cwd=CHECKOUT, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "results.json").read_text())[key]
    assert (tmp_path / "table.md").read_text() == done.stdout
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert set(netns.existing("cachexfs-")) <= before
