"""Other users: the mount asks the same of them as a local file system does."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mount.conftest import Place

pytestmark = pytest.mark.root
USER, GROUP = 12_345, 23_456


def as_user(call: Callable[[], object], groups: tuple[int, ...] = ()) -> str:
    """Run `call` in a child process as an ordinary user: "ok", or the name of its exception."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.setgroups(groups)
        os.setgid(GROUP)
        os.setuid(USER)
        os.umask(0o022)
        try:
            call()
            said = "ok"
        except BaseException as error:
            said = type(error).__name__
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader, "rb") as pipe:
        return pipe.read().decode()


@pytest.fixture
def open_place(place: Place) -> Place:
    """A place that an ordinary user can get to."""
    for directory in (place.mine, *place.mine.parents):
        if directory != Path("/") and not directory.stat().st_mode & stat.S_IXOTH:
            directory.chmod(directory.stat().st_mode | 0o011)
    return place


def test_case_22_a_user_owns_what_he_makes(open_place: Place) -> None:
    open_place.mine.chmod(0o777)
    assert as_user(lambda: (open_place.mine / "file").write_bytes(b"x")) == "ok"
    assert as_user(lambda: (open_place.mine / "directory").mkdir()) == "ok"
    assert as_user(lambda: (open_place.mine / "link").symlink_to("file")) == "ok"
    open_place.publish()
    for base in (open_place.mine, open_place.source):
        for name in ("file", "directory", "link"):
            found = (base / name).lstat()
            assert (found.st_uid, found.st_gid) == (USER, GROUP), (base, name)
        assert (base / "file").stat().st_mode & 0o777 == 0o644


def test_a_user_is_refused_what_is_not_his(open_place: Place) -> None:
    secret = open_place.mine / "secret"
    secret.write_bytes(b"x")
    secret.chmod(0o600)
    assert as_user(secret.read_bytes) == "PermissionError"
    assert as_user(lambda: secret.chmod(0o644)) == "PermissionError"
    assert as_user(lambda: (open_place.mine / "new").write_bytes(b"")) == "PermissionError"
    assert as_user(secret.unlink) == "PermissionError"


def test_case_13_the_owner_may_chmod_and_utime(open_place: Place) -> None:
    open_place.mine.chmod(0o777)

    def save() -> None:
        path = open_place.mine / "file"
        path.write_bytes(b"x")
        path.chmod(0o600)
        os.utime(path, (1, 2))

    assert as_user(save) == "ok"
    found = (open_place.mine / "file").stat()
    assert (found.st_mode & 0o777, found.st_mtime) == (0o600, 2)


def test_a_set_group_id_directory_passes_its_group_on(open_place: Place) -> None:
    shared = open_place.mine / "shared"
    shared.mkdir()
    os.chown(shared, 0, 777)
    shared.chmod(0o2777)
    assert as_user(lambda: (shared / "file").write_bytes(b"x")) == "ok"
    assert as_user(lambda: (shared / "below").mkdir()) == "ok"
    assert (shared / "file").stat().st_gid == 777
    assert (shared / "below").stat().st_gid == 777
    assert (shared / "below").stat().st_mode & stat.S_ISGID
    open_place.publish()
    assert (open_place.source / "shared" / "file").stat().st_gid == 777


def test_only_the_owner_removes_from_a_sticky_directory(open_place: Place) -> None:
    open_place.mine.chmod(0o1777)
    (open_place.mine / "file").write_bytes(b"x")
    assert as_user((open_place.mine / "file").unlink) == "PermissionError"
    assert as_user((open_place.mine / "file").read_bytes) == "ok"
