"""The systemd units: valid, the peer's hardened, the mount's without a mount namespace."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

UNITS = Path(__file__).parents[2] / "systemd"
PROGRAM = "/usr/local/bin/cachexfs"
PEER_EXPOSURE, MOUNT_EXPOSURE = 15, 60
"""In tenths, as `systemd-analyze security` takes it; docs/systemd.md says what is left open."""

# systemd.exec(5): settings that imply a mount namespace, or that take devices or users away.
MAKES_MOUNT_NAMESPACE = re.compile(
    r"(Protect(System|Home|ControlGroups|Kernel\w+|Proc|Hostname|Clock)|ProcSubset"
    r"|Private(Tmp|Devices|Mounts|Users|Network|IPC)|(ReadWrite|ReadOnly|Inaccessible|Exec|NoExec)"
    r"(Paths|Directories)|Bind\w*Paths|TemporaryFileSystem|Root(Directory|Image)\w*|Mount\w+"
    r"|(Extension|Runtime|State|Cache|Logs)(Images|Directories|Directory)|DynamicUser"
    r"|LoadCredential\w*|SetCredential\w*|NetworkNamespacePath|IPCNamespacePath)$"
)

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="needs systemd-analyze"
)


def settings(unit: Path) -> list[tuple[str, str]]:
    lines = [line for line in unit.read_text().splitlines() if "=" in line and line[0] not in "#;"]
    return [(key, value) for key, _, value in (line.partition("=") for line in lines)]


def test_the_mount_unit_makes_no_mount_namespace() -> None:
    keys = [key for key, _ in settings(UNITS / "cachexfs@.service")]
    assert keys
    assert [key for key in keys if MAKES_MOUNT_NAMESPACE.match(key)] == []


def test_the_peer_unit_does() -> None:
    keys = [key for key, _ in settings(UNITS / "cachexfs-peer.service")]
    assert any(MAKES_MOUNT_NAMESPACE.match(key) for key in keys)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The units as they would be installed, with a program that exists."""
    for source, name in (
        ("cachexfs@.service", "cachexfs@mnt-ckpt.service"),
        ("cachexfs-peer.service", "cachexfs-peer.service"),
    ):
        text = (UNITS / source).read_text()
        assert PROGRAM in text
        (tmp_path / name).write_text(text.replace(PROGRAM, "/bin/true"))
    return tmp_path


def analyze(*arguments: str | Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout


@needs_systemd
@pytest.mark.parametrize("unit", ["cachexfs@mnt-ckpt.service", "cachexfs-peer.service"])
def test_systemd_finds_no_fault(installed: Path, unit: str) -> None:
    analyze("verify", "--man=no", "--recursive-errors=no", installed / unit)


@needs_systemd
@pytest.mark.parametrize("name", ["store", "network", "adopt"])
def test_systemd_finds_no_fault_with_the_examples(installed: Path, name: str) -> None:
    drop_ins = installed / "cachexfs-peer.service.d"
    drop_ins.mkdir()
    example = UNITS / "cachexfs-peer.service.d" / f"{name}.conf.example"
    shutil.copy(example, drop_ins / f"{name}.conf")
    analyze("verify", "--man=no", "--recursive-errors=no", installed / "cachexfs-peer.service")


@needs_systemd
@pytest.mark.parametrize(
    ("unit", "exposure"),
    [("cachexfs-peer.service", PEER_EXPOSURE), ("cachexfs@mnt-ckpt.service", MOUNT_EXPOSURE)],
)
def test_they_are_hardened(installed: Path, unit: str, exposure: int) -> None:
    analyze("security", "--offline=yes", f"--threshold={exposure}", installed / unit)
