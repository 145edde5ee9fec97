"""The unit of lazerd: valid, closed as far as jobs allow, closed wholly beside slurmctld."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

UNITS = Path(__file__).parents[2] / "systemd"
UNIT = "lazerd.service"
PROGRAM = "/usr/local/bin/lazerd"
EXPOSURE, EXPOSURE_WITH_SLURM = 65, 15
"""In tenths, as `systemd-analyze security` takes it; docs/lazerd.md says what is left open."""

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="needs systemd-analyze"
)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    text = (UNITS / UNIT).read_text()
    assert PROGRAM in text
    path = tmp_path / UNIT
    path.write_text(text.replace(PROGRAM, "/bin/true"))
    return path


def with_slurm(installed: Path) -> Path:
    drop_ins = installed.parent / f"{UNIT}.d"
    drop_ins.mkdir()
    example = UNITS / f"{UNIT}.d" / "slurm.conf.example"
    # The user slurm is not on every machine that runs the tests.
    text = example.read_text().replace("=slurm\n", "=daemon\n")
    (drop_ins / "slurm.conf").write_text(text)
    return installed


def analyze(*arguments: str | Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


@needs_systemd
def test_systemd_finds_no_fault(installed: Path) -> None:
    analyze("verify", "--man=no", "--recursive-errors=no", installed)


@needs_systemd
def test_systemd_finds_no_fault_beside_slurm(installed: Path) -> None:
    analyze("verify", "--man=no", "--recursive-errors=no", with_slurm(installed))


@needs_systemd
def test_it_is_closed_as_far_as_jobs_allow(installed: Path) -> None:
    analyze("security", "--offline=yes", f"--threshold={EXPOSURE}", installed)


@needs_systemd
def test_it_is_closed_beside_slurm(installed: Path) -> None:
    slurm = with_slurm(installed)
    analyze("security", "--offline=yes", f"--threshold={EXPOSURE_WITH_SLURM}", slurm)


def test_what_jobs_need_is_open() -> None:
    text = (UNITS / UNIT).read_text()
    settings = dict(line.split("=", 1) for line in text.splitlines() if line[:1].isupper())
    assert settings["KillMode"] == "process"  # jobs outlive the daemon
    assert settings["Delegate"] == "yes"  # a cgroup for each
    closed = ("PrivateDevices", "DeviceAllow", "ProtectClock", "ProtectHome", "ProtectSystem")
    assert [key for key in closed if key in settings] == []
    assert "MemoryDenyWriteExecute" not in settings  # compilers of kernels write code
