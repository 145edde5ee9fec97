"""Where the kernel refuses a backing file: programs see no error, and `status` says why."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster_of_nodes import Node, nodes

pytestmark = [pytest.mark.fuse, pytest.mark.root]

MIB = os.urandom(1 << 20)

BACKING_OPEN = 229 << 8 | 1
"""Type and number of the ioctl FUSE_DEV_IOC_BACKING_OPEN."""

REFUSING = f"""
import errno, fcntl, os

real = fcntl.ioctl

def ioctl(fd, request, *arguments):
    if request & 0xFFFF == {BACKING_OPEN} and os.path.exists(os.environ["TEST_REFUSE"]):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))
    return real(fd, request, *arguments)

fcntl.ioctl = ioctl
"""
"""A `sitecustomize` for the daemon's interpreter: no backing files while a certain file exists."""


@contextlib.contextmanager
def overlay(base: Path) -> Iterator[Path]:
    """A source that is itself stacked on another file system."""
    merged, *below = (base / name for name in ("merged", "lower", "upper", "work"))
    for directory in (merged, *below):
        directory.mkdir(parents=True)
    lower, upper, work = below
    (lower / "old").write_bytes(MIB)
    (lower / "too").write_bytes(MIB)
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    command = ["mount", "-t", "overlay", "overlay", "-o", options, merged]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("no overlayfs can be mounted here")
    try:
        yield merged
    finally:
        subprocess.run(["umount", "-l", merged], check=True)


def read_mapped(path: Path) -> bytes:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as seen:
        return bytes(seen)


def data_path(node: Node) -> tuple[str, str]:
    report = node.report()
    return report["data_path"], report["data_path_reason"]


def test_a_source_on_overlayfs_is_read_through_the_daemon(tmp_path: Path) -> None:
    with overlay(tmp_path / "stack") as merged, nodes(tmp_path, source=merged) as (node,):
        node.mount()
        path, before = data_path(node)
        if path != "passthrough":
            pytest.skip(before)
        assert (node.mountpoint / "old").read_bytes() == MIB
        assert read_mapped(node.mountpoint / "old") == MIB
        path, reason = data_path(node)
        assert path == "passthrough", reason
        assert "shared file system through the daemon" in reason
        assert errno.errorcode[errno.ELOOP] in reason
        with (node.mountpoint / "old").open("r+b") as file:  # comes to the RAM tier
            file.write(b"new")
        (node.mountpoint / "fresh").write_bytes(MIB)
        node.wait("durable")
        assert (merged / "old").read_bytes() == b"new" + MIB[3:]
        assert (node.mountpoint / "too").read_bytes() == MIB
        assert data_path(node) == (path, reason)
        node.umount()


def test_a_mount_without_the_privilege_goes_on_portably(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch = tmp_path / "refuse"
    (tmp_path / "sitecustomize.py").write_text(REFUSING)
    monkeypatch.setenv("TEST_REFUSE", str(switch))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    with nodes(tmp_path) as (node,):
        (node.source / "old").write_bytes(MIB)
        node.mount()
        if data_path(node)[0] != "passthrough":
            pytest.skip(data_path(node)[1])
        before, after = node.mountpoint / "before", node.mountpoint / "after"
        with before.open("w+b") as earlier:
            earlier.write(MIB)
            earlier.flush()
            switch.touch()
            after.write_bytes(MIB)  # this one is refused
            path, reason = data_path(node)
            assert path == "portable", reason
            assert "CAP_SYS_ADMIN" in reason
            with before.open("r+b") as later:  # joins one that is open past the daemon
                later.write(b"new")
            earlier.seek(0)
            assert earlier.read() == b"new" + MIB[3:]
        assert before.read_bytes() == b"new" + MIB[3:]
        assert after.read_bytes() == read_mapped(after) == MIB
        with (node.mountpoint / "old").open("r+b") as file:
            file.write(b"new")
            os.fsync(file.fileno())
        node.wait("durable")
        for name, content in (("before", b"new"), ("after", MIB[:3]), ("old", b"new")):
            assert (node.source / name).read_bytes() == content + MIB[3:]
        switch.unlink()
        node.kill_only_daemon()
        assert after.read_bytes() == MIB  # the next daemon asks anew
        assert data_path(node)[0] == "passthrough"
        node.umount()
