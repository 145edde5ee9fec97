"""What every level shares: tests that cannot run here are skipped, and no mount is left behind."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachexfs.demo.faulty_storage import FaultyStorage
from cachexfs.demo.mountpoints import detach, mounted
from tests.cluster_of_nodes import Node, nodes

DETACH_S = 5.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs /dev/fuse or root where that is not to be had."""
    no_fuse = pytest.mark.skip(reason="/dev/fuse cannot be opened here")
    no_root = pytest.mark.skip(reason="needs root")
    have_fuse, have_root = _can_open(Path("/dev/fuse")), os.geteuid() == 0
    for item in items:
        if {"faulty_storage", "node", "pair", "shared_node"} & set(
            getattr(item, "fixturenames", ())
        ):
            item.add_marker("fuse")
        if item.get_closest_marker("fuse") and not have_fuse:
            item.add_marker(no_fuse)
        if item.get_closest_marker("root") and not have_root:
            item.add_marker(no_root)


def _can_open(device: Path) -> bool:
    try:
        os.close(os.open(device, os.O_RDWR))
    except OSError:
        return False
    return True


@pytest.fixture(scope="session", autouse=True)
def _no_mount_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Unmount what tests left below pytest's own directory of this session, and nothing else."""
    base = tmp_path_factory.getbasetemp().resolve()
    yield
    for mount in reversed(mounted()):
        if mount.path.is_relative_to(base):
            print(f"left mounted by a test: {mount.path} ({mount.fs_type})")
            with contextlib.suppress(subprocess.TimeoutExpired):
                detach(mount.path).wait(DETACH_S)


@pytest.fixture
def faulty_storage(tmp_path: Path) -> Iterator[FaultyStorage]:
    """Shared storage that fails on demand: `tmp_path/backing` seen at `tmp_path/storage`."""
    backing, mountpoint = tmp_path / "backing", tmp_path / "storage"
    backing.mkdir()
    mountpoint.mkdir()
    with FaultyStorage(backing, mountpoint) as storage:
        yield storage


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A mounted node without peers."""
    with nodes(tmp_path) as (made,):
        made.mount()
        yield made


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Node, Node]]:
    """Node a, mounted, whose replicas go to node b."""
    with nodes(tmp_path, "ab") as (a, b):
        b.start_peer()
        a.mount()
        yield a, b
