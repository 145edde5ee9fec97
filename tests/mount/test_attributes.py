"""Mode, owner, times and xattrs: in the mount at once, on the source when it has been told."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.cluster_of_nodes import eventually
from tests.mount.conftest import Place
from tests.mount.test_files import evict

AT_NS = 1_500_000_000_123_456_789


def test_attributes_changed_after_the_close_reach_the_source(place: Place) -> None:
    file = place.mine / "file"
    file.write_bytes(b"x")
    place.publish()
    file.chmod(0o640)
    os.utime(file, ns=(AT_NS, AT_NS))
    theirs = place.source / "file"
    eventually(lambda: theirs.stat().st_mtime_ns == AT_NS, "the time")
    eventually(lambda: theirs.stat().st_mode & 0o777 == 0o640, "the mode")
    assert file.stat().st_mtime_ns == AT_NS


def test_attributes_changed_while_the_file_is_on_its_way_reach_the_source(place: Place) -> None:
    for number in range(20):
        file = place.mine / f"file-{number}"
        file.write_bytes(b"x" * 10_000)
        file.chmod(0o600 + number % 8)
        os.utime(file, ns=(AT_NS + number, AT_NS + number))
    place.publish()
    for number in range(20):
        theirs = place.source / f"file-{number}"
        wanted = (0o600 + number % 8, AT_NS + number)
        eventually(
            lambda t=theirs, w=wanted: (t.stat().st_mode & 0o777, t.stat().st_mtime_ns) == w,
            str(theirs),
        )


def test_attributes_changed_before_an_eviction_are_not_lost(place: Place) -> None:
    file = place.mine / "file"
    file.write_bytes(b"x")
    place.publish()
    for number in range(30):
        file.chmod(0o600 + number % 8)
        os.utime(file, ns=(AT_NS + number, AT_NS + number))
        try:
            evict(place.node, f"{place.name}/file")
        except Exception as error:
            assert "on their way" in str(error), error
        assert (file.stat().st_mode & 0o777, file.stat().st_mtime_ns) == (
            0o600 + number % 8,
            AT_NS + number,
        )


def test_an_xattr_that_is_removed_goes_from_the_source_too(place: Place) -> None:
    file = place.mine / "file"
    file.write_bytes(b"x")
    os.setxattr(file, "user.kept", b"1")
    os.setxattr(file, "user.removed", b"2")
    place.publish()
    theirs = place.source / "file"
    eventually(lambda: sorted(os.listxattr(theirs)) == ["user.kept", "user.removed"], "both")
    os.removexattr(file, "user.removed")
    eventually(lambda: os.listxattr(theirs) == ["user.kept"], "its end")
    with pytest.raises(OSError) as caught:
        os.getxattr(file, "user.removed")
    assert caught.value.errno == errno.ENODATA


def test_virtual_xattrs_are_readable_hidden_and_not_to_be_set(place: Place) -> None:
    file: Path = place.mine / "file"
    file.write_bytes(b"x" * 1000)
    place.publish()
    assert os.getxattr(file, "user.cachexfs.state") == b"durable"
    assert os.getxattr(file, "user.cachexfs.replicas") == b""
    assert os.getxattr(file, "user.cachexfs.flushed_bytes") == b"1000"
    assert os.getxattr(place.mine, "user.cachexfs.state") == b"durable"
    assert os.listxattr(file) == []
    with pytest.raises(PermissionError):
        os.setxattr(file, "user.cachexfs.state", b"lost")
    with pytest.raises(OSError) as caught:
        os.getxattr(file, "user.cachexfs.nonsense")
    assert caught.value.errno == errno.ENODATA


def test_create_and_replace_flags_of_xattrs(place: Place) -> None:
    file = place.mine / "file"
    file.write_bytes(b"")
    os.setxattr(file, "user.a", b"1", os.XATTR_CREATE)
    with pytest.raises(FileExistsError):
        os.setxattr(file, "user.a", b"2", os.XATTR_CREATE)
    os.setxattr(file, "user.a", b"3", os.XATTR_REPLACE)
    with pytest.raises(OSError) as caught:
        os.setxattr(file, "user.b", b"4", os.XATTR_REPLACE)
    assert caught.value.errno == errno.ENODATA


def test_the_umask_and_the_mode_of_a_new_file(place: Place) -> None:
    before = os.umask(0o027)
    try:
        os.close(os.open(place.mine / "file", os.O_CREAT | os.O_WRONLY, 0o666))
        (place.mine / "directory").mkdir()
    finally:
        os.umask(before)
    assert (place.mine / "file").stat().st_mode & 0o777 == 0o640
    assert (place.mine / "directory").stat().st_mode & 0o777 == 0o750
