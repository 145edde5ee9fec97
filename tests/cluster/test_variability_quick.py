"""The experiment about the variation of saves, short: it runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.hosts import preflight

CHECKOUT = Path(__file__).parents[2]


@pytest.mark.root
@pytest.mark.fuse
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_all_places_are_measured(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("matplotlib")
    if (os.cpu_count() or 1) < 2:
        pytest.skip("it needs two cores")
    if sentence := preflight.missing("gluster"):
        pytest.skip(sentence)
    command = [sys.executable, "-m", "tools.experiments.varying", "--quick"]
    page = tmp_path / "page.md"
    page.write_text("<!-- figures: begin -->\n<!-- figures: end -->\n")
    done = subprocess.run(
        [*command, "--profile", "bursts", "--minutes", "2", "--out", tmp_path, "--write-doc", page],
        capture_output=True, text=True, cwd=CHECKOUT, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    measured = {(sample["place"], sample["writer"]) for sample in results["samples"]}
    assert {("captured", "raw"), ("tmpfs", "torch"), ("direct", "raw")} <= measured
    assert results["loads"] and results["weather"]["bursts"]
    assert "fsync = captured" in page.read_text()
    assert (tmp_path / "variability.png").stat().st_size > 10_000
