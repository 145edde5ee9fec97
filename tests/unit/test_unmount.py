"""Only what is a mount point is unmounted, and nothing that is merely named like the path."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachexfs.cli.umount import unmount
from cachexfs.demo.mountpoints import detach, is_mountpoint
from cachexfs.errors import NoSuchMount

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount"),
]


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A directory, and a mount elsewhere whose source has that name."""
    source, at = tmp_path / "source", tmp_path / "at"
    source.mkdir()
    at.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", str(source), str(at)], check=True)
    yield source, at
    if is_mountpoint(at):
        subprocess.run(["umount", str(at)], check=True)


def test_a_directory_that_is_the_source_of_a_mount_is_refused(mount: tuple[Path, Path]) -> None:
    source, at = mount
    with pytest.raises(NoSuchMount, match="nothing is mounted at"):
        unmount(str(source))
    assert detach(source).wait(10) == 0
    assert is_mountpoint(at)


def test_a_mount_point_is_unmounted_by_any_path_to_it(
    mount: tuple[Path, Path], tmp_path: Path
) -> None:
    _, at = mount
    above, link = tmp_path / "above", tmp_path / "link"
    above.symlink_to(tmp_path)
    link.symlink_to(at)
    unmount(str(above / "at"))
    assert not is_mountpoint(at)
    subprocess.run(["mount", "-t", "tmpfs", "none", str(at)], check=True)
    unmount(str(link))
    assert not is_mountpoint(at)
    subprocess.run(["mount", "-t", "tmpfs", "none", str(at)], check=True)
    assert is_mountpoint(above / "at") and detach(above / "at").wait(10) == 0
    assert not is_mountpoint(at)
