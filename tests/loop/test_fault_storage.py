"""The demo's storage: as good as its directory while well, and ill exactly as told."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cachexfs.demo.faults import Fault
from cachexfs.demo.faulty_storage import FaultyStorage, StorageError
from cachexfs.demo.mountpoints import detach, is_mountpoint

pytestmark = pytest.mark.fuse

SOON_S = 10.0
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until it holds; a test's own limit of time is the last resort."""
    deadline = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < deadline, "did not come true"
        time.sleep(0.01)


def fails_with(code: int, action: Callable[[], object]) -> bool:
    try:
        action()
    except OSError as error:
        assert error.errno == code
        return True
    return False


class Caller(threading.Thread):
    """A call in a thread of its own, which may hang; `result` is what it returned or raised."""

    def __init__(self, action: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._action = action
        self.result: object = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self._action()
        except OSError as error:
            self.result = error


# -- while well


def test_bytes_arrive_in_the_directory(faulty_storage: FaultyStorage) -> None:
    data = os.urandom(3 * 1024 * 1024 + 17)
    file = faulty_storage.mountpoint / "a" / "b"
    file.parent.mkdir()
    file.write_bytes(data)
    assert (faulty_storage.backing / "a" / "b").read_bytes() == data == file.read_bytes()
    assert os.listdir(faulty_storage.mountpoint) == ["a"]


def test_identity_is_that_of_the_directory(faulty_storage: FaultyStorage) -> None:
    at, behind = faulty_storage.mountpoint, faulty_storage.backing
    (at / "x").write_text("x")
    os.link(at / "x", at / "y")
    assert (at / "x").stat().st_ino == (at / "y").stat().st_ino == (behind / "x").stat().st_ino
    assert (at / "x").stat().st_nlink == 2
    assert at.stat().st_ino == behind.stat().st_ino


def test_what_another_client_does_is_seen_at_once(faulty_storage: FaultyStorage) -> None:
    at, behind = faulty_storage.mountpoint, faulty_storage.backing
    assert not (at / "x").exists()
    (behind / "x").write_text("one")
    assert (at / "x").read_text() == "one"
    (behind / "x").write_text("other")
    assert (at / "x").read_text() == "other"
    (behind / "x").unlink()
    assert not (at / "x").exists()


def test_an_open_file_survives_rename_and_unlink(faulty_storage: FaultyStorage) -> None:
    at = faulty_storage.mountpoint
    with (at / "x").open("w+b", buffering=0) as file:
        file.write(b"1")
        (at / "x").rename(at / "y")
        file.write(b"2")
        assert (at / "y").read_bytes() == b"12"
        (at / "y").unlink()
        file.write(b"3")
        assert os.pread(file.fileno(), 3, 0) == b"123"
        assert os.fstat(file.fileno()).st_nlink == 0
    assert os.listdir(at) == []


def test_rename_of_directories_and_with_flags(faulty_storage: FaultyStorage) -> None:
    at = faulty_storage.mountpoint
    libc = ctypes.CDLL(None, use_errno=True)

    def renameat2(old: str, new: str, flags: int) -> int:
        done = libc.renameat2(-100, os.fsencode(at / old), -100, os.fsencode(at / new), flags)
        return 0 if done == 0 else ctypes.get_errno()

    (at / "d").mkdir()
    (at / "d" / "f").write_text("f")
    (at / "d").rename(at / "e")
    (at / "g").write_text("g")
    assert renameat2("g", "e", RENAME_NOREPLACE) == errno.EEXIST
    assert renameat2("g", "e", RENAME_EXCHANGE) == 0
    assert (at / "e").read_text() == "g"
    assert (at / "g" / "f").read_text() == "f"
    assert fails_with(errno.ENOTEMPTY, lambda: (at / "g").rmdir())


def test_open_flags(faulty_storage: FaultyStorage) -> None:
    file = faulty_storage.mountpoint / "x"
    fd = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o640)
    os.write(fd, b"ab")
    os.write(fd, b"cd")
    os.close(fd)
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert fails_with(errno.EEXIST, lambda: os.open(file, os.O_CREAT | os.O_EXCL))
    assert file.read_bytes() == b"abcd"
    os.close(os.open(file, os.O_WRONLY | os.O_TRUNC))
    assert file.stat().st_size == 0


def test_attributes(faulty_storage: FaultyStorage) -> None:
    file = faulty_storage.mountpoint / "x"
    file.write_bytes(b"12345")
    os.utime(file, ns=(10**18 + 1, 10**18 + 2))
    os.chmod(file, 0o604)
    os.truncate(file, 3)
    os.utime(file, ns=(10**18 + 1, 10**18 + 2))
    found = (faulty_storage.backing / "x").stat()
    assert (found.st_atime_ns, found.st_mtime_ns) == (10**18 + 1, 10**18 + 2)
    assert (found.st_size, stat.S_IMODE(found.st_mode)) == (3, 0o604)


def test_links_locks_maps_and_xattrs(faulty_storage: FaultyStorage) -> None:
    at = faulty_storage.mountpoint
    (at / "link").symlink_to("x")
    (at / "x").write_bytes(bytes(8192))
    assert os.readlink(at / "link") == "x"
    os.setxattr(at / "x", "user.a", b"1")
    assert os.listxattr(at / "x") == ["user.a"]
    os.removexattr(at / "x", "user.a")
    assert fails_with(errno.ENODATA, lambda: os.getxattr(at / "x", "user.a"))
    with (at / "x").open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with mmap.mmap(file.fileno(), 0) as shared:
            shared[5000:5003] = b"abc"
    assert (faulty_storage.backing / "x").read_bytes()[5000:5003] == b"abc"


def test_df_and_directory_fsync(faulty_storage: FaultyStorage) -> None:
    assert os.statvfs(faulty_storage.mountpoint).f_blocks > 0
    fd = os.open(faulty_storage.mountpoint, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    assert faulty_storage.report().ops["fsyncdir"] == 1


def test_a_large_directory_is_listed_whole(faulty_storage: FaultyStorage) -> None:
    names = {f"{number:04}-{'x' * 100}" for number in range(1500)}
    for name in names:
        (faulty_storage.backing / name).touch()
    assert set(os.listdir(faulty_storage.mountpoint)) == names


@pytest.mark.root
def test_a_new_file_belongs_to_its_writer(faulty_storage: FaultyStorage, tmp_path: Path) -> None:
    for directory in (tmp_path.parent.parent, tmp_path.parent, tmp_path):
        directory.chmod(0o755)  # pytest's directories are closed to others
    faulty_storage.mountpoint.chmod(0o1777)
    mine = faulty_storage.mountpoint / "root"
    mine.write_text("secret")
    mine.chmod(0o600)
    script = "umask 027; echo x > theirs && mkdir dir && ! cat root 2>/dev/null"
    subprocess.run(
        ["setpriv", "--reuid=1234", "--regid=2345", "--clear-groups", "sh", "-c", script],
        cwd=faulty_storage.mountpoint,
        check=True,
    )
    for name, mode in (("theirs", 0o640), ("dir", 0o750)):
        found = (faulty_storage.backing / name).stat()
        assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (1234, 2345, mode)


# -- while ill


@pytest.mark.parametrize("code", ["EIO", "EDQUOT", "ENOSPC"])
def test_an_errno_comes_back_until_cleared(faulty_storage: FaultyStorage, code: str) -> None:
    file = faulty_storage.mountpoint / "x"
    faulty_storage.set_fault(Fault(errno=code, ops=("create", "write", "rename", "fsync")))
    assert fails_with(getattr(errno, code), lambda: file.write_bytes(b"x"))
    assert faulty_storage.report().hits == 1
    faulty_storage.clear()
    file.write_bytes(b"x")
    assert file.read_bytes() == b"x"


def test_a_fault_by_name_and_count(faulty_storage: FaultyStorage) -> None:
    at = faulty_storage.mountpoint
    (at / "d").mkdir()
    with faulty_storage.fault(Fault(errno="EDQUOT", ops=("write",), name="d/latest*", count=2)):
        (at / "latest").write_text("x")
        (at / "d" / "shard").write_text("x")
        with (at / "d" / "latest").open("wb", buffering=0) as file:
            for _ in range(2):
                assert fails_with(errno.EDQUOT, lambda: file.write(b"x"))
            file.write(b"x")


def test_rename_is_met_under_either_name(faulty_storage: FaultyStorage) -> None:
    at = faulty_storage.mountpoint
    (at / "tmp").write_text("x")
    faulty_storage.set_fault(Fault(errno="EIO", ops=("rename",), name="final"))
    assert fails_with(errno.EIO, lambda: (at / "tmp").rename(at / "final"))
    (at / "tmp").rename(at / "other")


def test_a_failed_operation_leaves_the_directory_alone(faulty_storage: FaultyStorage) -> None:
    faulty_storage.set_fault(Fault(errno="EIO"))
    assert fails_with(errno.EIO, lambda: os.mkdir(faulty_storage.mountpoint / "d"))
    assert os.listdir(faulty_storage.backing) == []


def test_what_hangs_is_carried_out_when_released(faulty_storage: FaultyStorage) -> None:
    at = faulty_storage.mountpoint
    faulty_storage.set_fault(Fault(hang=True, ops=("mkdir",)))
    caller = Caller((at / "d").mkdir)
    eventually(lambda: faulty_storage.report().waiting == 1)
    assert os.listdir(faulty_storage.backing) == []
    faulty_storage.clear()
    caller.join(SOON_S)
    assert (at / "d").is_dir()


def test_what_hangs_can_be_made_to_fail_instead(faulty_storage: FaultyStorage) -> None:
    faulty_storage.set_fault(Fault(hang=True, ops=("mkdir",)))
    caller = Caller((faulty_storage.mountpoint / "d").mkdir)
    eventually(lambda: faulty_storage.report().waiting == 1)
    faulty_storage.set_fault(Fault(errno="EIO"))
    caller.join(SOON_S)
    assert isinstance(caller.result, OSError) and caller.result.errno == errno.EIO


def test_what_hangs_holds_up_nothing_else(faulty_storage: FaultyStorage) -> None:
    at = faulty_storage.mountpoint
    (at / "ill").mkdir()  # the mkdir that hangs keeps the kernel's lock on its directory
    faulty_storage.set_fault(Fault(hang=True, ops=("mkdir", "write"), name="ill*"))
    Caller((at / "ill" / "ill").mkdir)
    Caller(lambda: (at / "ill.pt").write_text("x"))
    eventually(lambda: faulty_storage.report().waiting == 2)
    (at / "well").write_text("x")
    assert (at / "well").read_text() == "x"
    assert sorted(os.listdir(at)) == ["ill", "ill.pt", "well"]


def test_many_may_hang_at_once(faulty_storage: FaultyStorage) -> None:
    at, many = faulty_storage.mountpoint, 150
    for number in range(many + 1):
        (faulty_storage.backing / f"{number}").write_text("x")
    faulty_storage.set_fault(Fault(hang=True, ops=("open",), name="[0-9]*"))
    (faulty_storage.backing / "well").write_text("x")
    callers = [Caller((at / f"{number}").read_bytes) for number in range(many)]
    eventually(lambda: faulty_storage.report().waiting == many)
    assert (at / "well").read_text() == "x"
    faulty_storage.clear()
    for caller in callers:
        caller.join(SOON_S)
        assert caller.result == b"x"


def test_slow_operations_and_slow_writes(faulty_storage: FaultyStorage) -> None:
    file = faulty_storage.mountpoint / "x"
    with faulty_storage.fault(Fault(delay_s=0.2, ops=("create",))):
        start_s = time.monotonic()
        file.touch()
        assert time.monotonic() - start_s >= 0.2
    with faulty_storage.fault(Fault(bytes_per_s=4e6)):
        start_s = time.monotonic()
        file.write_bytes(bytes(1_000_000))
        assert time.monotonic() - start_s >= 0.25


def test_nonsense_is_refused_and_changes_nothing(faulty_storage: FaultyStorage) -> None:
    faulty_storage.set_fault(Fault(errno="EIO", ops=("mkdir",)))
    with pytest.raises(StorageError, match="Expected"):
        faulty_storage._order(b'[{"errno": 5}]')
    assert fails_with(errno.EIO, lambda: (faulty_storage.mountpoint / "d").mkdir())


# -- the end


@pytest.mark.parametrize("fault", [Fault(hang=True), Fault(delay_s=3600.0)])
def test_stop_while_everything_is_stuck(faulty_storage: FaultyStorage, fault: Fault) -> None:
    file = (faulty_storage.mountpoint / "x").open("wb", buffering=0)
    faulty_storage.set_fault(fault)
    caller = Caller(lambda: file.write(b"x"))
    eventually(lambda: faulty_storage.report().waiting == 1)
    faulty_storage.stop()
    caller.join(SOON_S)
    assert isinstance(caller.result, OSError)
    assert not is_mountpoint(faulty_storage.mountpoint)
    with contextlib.suppress(OSError):
        file.close()


def test_stop_while_in_use_and_start_again(faulty_storage: FaultyStorage) -> None:
    with (faulty_storage.mountpoint / "x").open("wb", buffering=0) as file:
        file.write(b"x")
        faulty_storage.stop()
        assert not is_mountpoint(faulty_storage.mountpoint)
        faulty_storage.stop()
        with contextlib.suppress(OSError):
            file.close()
    faulty_storage.start()
    assert (faulty_storage.mountpoint / "x").read_bytes() == b"x"


def test_a_storage_that_cannot_start_says_why(tmp_path: Path) -> None:
    storage = FaultyStorage(tmp_path / "missing", tmp_path)
    with pytest.raises(StorageError, match="missing"):
        storage.start()
    with pytest.raises(StorageError, match="not running"):
        storage.report()


def test_the_storage_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    backing, mountpoint = tmp_path / "backing", tmp_path / "storage"
    backing.mkdir()
    mountpoint.mkdir()
    script = (
        "import os, sys, pathlib; from cachexfs.demo.faulty_storage import FaultyStorage\n"
        "s = FaultyStorage(*map(pathlib.Path, sys.argv[1:])); s.start(); print(flush=True)\n"
        "sys.stdin.read()\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", script, backing, mountpoint],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert owner.stdout is not None
        owner.stdout.readline()
        assert is_mountpoint(mountpoint)
        owner.send_signal(signal.SIGKILL)
        eventually(lambda: not is_mountpoint(mountpoint))
    finally:
        owner.kill()
        owner.communicate()
        if is_mountpoint(mountpoint):
            detach(mountpoint).wait(SOON_S)
