"""What mount(8) calls, as what we call."""

from __future__ import annotations

import getopt

import pytest

from cachexfs.cli.mount import parse_options
from cachexfs.cli.mount_helper import translate
from cachexfs.errors import UsageError


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        (["/lustre/run", "/mnt"], ["mount", "/lustre/run", "/mnt"]),
        (["/s", "/m", "-o", "rw"], ["mount", "/s", "/m", "-o", "rw"]),
        (["/s", "/m", "-n", "-v", "-o", "ro,x=y"], ["mount", "/s", "/m", "-o", "ro,x=y"]),
        (["-s", "/s", "/m"], ["mount", "/s", "/m"]),
        (["/s", "/m", "-sv"], ["mount", "/s", "/m"]),
        (["/s", "/m", "-t", "cachexfs"], ["mount", "/s", "/m"]),
        (["/s", "/m", "-t", "fuse.cachexfs", "-o", "ro"], ["mount", "/s", "/m", "-o", "ro"]),
        (["-odev,ro", "/s", "/m"], ["mount", "/s", "/m", "-o", "dev,ro"]),
    ],
)
def test_arguments(given: list[str], ours: list[str]) -> None:
    assert translate(given) == ours


def test_a_dry_run_mounts_nothing() -> None:
    assert translate(["/s", "/m", "-f", "-o", "rw"]) is None
    assert translate(["/s", "/m", "-sfnv"]) is None


def test_what_is_not_understood_is_refused() -> None:
    for arguments in (["/s", "/m", "-N", "/proc/1/ns/mnt"], ["/s", "/m", "-o"], ["-x", "/s"]):
        with pytest.raises(getopt.GetoptError):
            translate(arguments)


def test_options_of_fstab_are_understood() -> None:
    flags, config = parse_options(("defaults,noauto,_netdev,nofail,x-systemd.after=a,user",), None)
    assert flags == {"default_permissions"} and config is None
    flags, config = parse_options(("ro,noexec", "config=/etc/c.toml"), None)
    assert flags == {"ro", "noexec", "default_permissions"} and str(config) == "/etc/c.toml"
    for option in ("dev", "suid", "exec", "rw", "async", "atime", "relatime", "owner", "group"):
        flags, _ = parse_options((option,), None)
        assert flags == {"default_permissions"}
    with pytest.raises(UsageError, match="frobnicate"):
        parse_options(("rw,frobnicate",), None)
