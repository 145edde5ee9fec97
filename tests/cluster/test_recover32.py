"""The published experiment, small: 8 ranks of PyTorch on 2 hosts, one of which is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cachexfs.errors import UsageError
from tools.experiments.recovering.accounts import Account, as_text, differences
from tools.experiments.recovering.plan import Plan, quick
from tools.hosts import preflight

CHECKOUT = Path(__file__).parents[2]


@pytest.mark.root
@pytest.mark.fuse
@pytest.mark.parametrize("silent", ["save", pytest.param("kill", marks=pytest.mark.slow)])
def test_a_checkpoint_comes_back_and_the_loss_goes_on(silent: str) -> None:
    pytest.importorskip("torch")
    if sentence := preflight.missing("dir"):
        pytest.skip(sentence)
    command = [sys.executable, "-m", "tools.experiments.recovering"]
    done = subprocess.run(
        [*command, "--quick", "--silent", silent, "--json"],
        capture_output=True, text=True, cwd=CHECKOUT, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (account,) = json.loads(done.stdout)
    assert account["held"] and account["files"] == 9 and account["lost"] == ["host1"]
    assert [step for step, *_ in account["losses"]] == [1, 2, 3, 4, 5]
    assert all(expected == got for _, expected, got in account["losses"])


def test_what_is_not_as_it_was_written_is_named() -> None:
    file = {"sha256": "a", "size_bytes": 1, "mode": 0o644, "uid": 0, "gid": 0, "mtime_ns": 1}
    written = {"x": file, "y": file}
    assert differences(written, written) == ""
    assert differences(written, {"x": {**file, "mode": 0o600}}) == "1 missing: y; x: mode"


def test_a_run_holds_only_if_all_of_it_does() -> None:
    account = Account(quick())
    assert not account.held
    account.check("bytes", True)
    account.losses[1] = (2.5, 2.5)
    with account.phase("save"):
        pass
    assert account.held and account.as_json()["held"]
    account.check("loss", False, "it jumped")
    assert not account.held
    text = as_text([account, Account(Plan())])
    assert "FAILED  loss (it jumped)" in text and "2.500000000 =" in text


@pytest.mark.parametrize("wrong", [{"lost": 4}, {"ranks": 33}, {"ranks": 24}, {"width": 100}])
def test_what_cannot_be_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        Plan(**wrong)  # type: ignore[arg-type]
