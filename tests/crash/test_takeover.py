"""The daemon dies, the mount does not: programs notice nothing.

Only the daemon is killed here, unless a test says otherwise; its keeper starts another one.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachexfs.demo.faults import Fault
from cachexfs.demo.faulty_storage import FaultyStorage
from cachexfs.keeper import PAUSES_S
from tests.cluster_of_nodes import Node, eventually, nodes, run
from tests.crash.under_fire import Troop

pytestmark = [pytest.mark.fuse, pytest.mark.root]

SEED = 20240507
MIB = 1 << 20


@pytest.fixture
def linked(tmp_path: Path) -> Iterator[Node]:
    """A mounted node without peers, served by the kernel link."""
    with nodes(tmp_path) as (made,):
        made.mount()
        assert made.report()["data_path"] == "passthrough"
        yield made
        print(made.log)
        assert "Traceback" not in made.log


def replace(node: Node) -> None:
    """Kill the daemon, and wait for the next one."""
    before = node.daemon()
    node.kill_only_daemon()
    node.wait_for_another(before)


# --- under load -----------------------------------------------------------------------------------


def test_no_program_notices_that_the_daemon_dies_at_random(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    print(f"seed {SEED}")
    kinds = ("large", "small", "map", "rename", "append", "list", "lock")
    with nodes(tmp_path, "ab", extra='[mount]\nfsync = "captured"\n') as (a, b):
        b.start_peer()
        a.mount()
        troop = Troop.of(a, kinds, 6, SEED)
        try:
            while troop.is_busy():
                daemon = a.daemon()
                a.kill_only_daemon()
                a.wait_for_another(daemon)
                time.sleep(rng.uniform(0, 1))
            said = troop.said()
        finally:
            troop.close()
            print(a.log)
        troop.check(a.mountpoint, said)
        a.wait("durable", timeout_s=30)
        troop.check(a.source, said)
        assert "Traceback" not in a.log


def test_no_program_notices_a_restart(tmp_path: Path) -> None:
    kinds = ("large", "small", "map", "rename", "append", "list")
    with nodes(tmp_path, extra='[mount]\nfsync = "captured"\n') as (a,):
        a.mount()
        troop = Troop.of(a, kinds, 4, SEED)
        try:
            restarts = 0
            while troop.is_busy():
                before = a.daemon()
                run("restart", a.mountpoint)
                assert a.daemon() != before
                restarts += 1
            said = troop.said()
        finally:
            troop.close()
            print(a.log)
        assert restarts >= 2
        troop.check(a.mountpoint, said)
        a.wait("durable", timeout_s=30)
        troop.check(a.source, said)
        assert "Traceback" not in a.log
        assert "died" not in a.log


def test_a_kill_during_restart_changes_nothing(linked: Node) -> None:
    rng = random.Random(SEED)
    troop = Troop.of(linked, ("small", "append"), 4, SEED)
    try:
        while troop.is_busy():
            asking = subprocess.Popen(
                [sys.executable, "-m", "cachexfs", "restart", str(linked.mountpoint)],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            time.sleep(rng.uniform(0.2, 0.8))
            linked.kill_only_daemon()
            asking.wait(timeout=40)
        said = troop.said()
    finally:
        troop.close()
    troop.check(linked.mountpoint, said)


def test_a_kill_during_umount_loses_nothing(linked: Node) -> None:
    rng = random.Random(SEED)
    for round_ in range(4):
        (linked.mountpoint / f"f{round_}").write_bytes(b"%d" % round_ * 300_000)
        asking = subprocess.Popen(
            [sys.executable, "-m", "cachexfs", "umount", str(linked.mountpoint), "--for", "none"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        time.sleep(rng.uniform(0.15, 0.4))
        linked.kill_only_daemon()
        asking.wait(timeout=40)
        if os.path.ismount(linked.mountpoint):
            linked.umount("none")
        eventually(lambda: not os.path.ismount(linked.mountpoint), "the end of the mount")
        linked.mount()
    for round_ in range(4):
        assert (linked.mountpoint / f"f{round_}").read_bytes() == b"%d" % round_ * 300_000
    linked.wait("durable")
    for round_ in range(4):
        assert (linked.source / f"f{round_}").read_bytes() == b"%d" % round_ * 300_000


# --- what is open ---------------------------------------------------------------------------------


def test_what_is_open_stays_open(linked: Node) -> None:
    (linked.source / "theirs").write_bytes(b"theirs" * 1000)
    (linked.source / "removed").write_bytes(b"removed" * 1000)
    os.mkdir(linked.mountpoint / "dir")
    ours = os.open(linked.mountpoint / "ours", os.O_CREAT | os.O_RDWR)
    os.write(ours, b"ours")
    unlinked = os.open(linked.mountpoint / "unlinked", os.O_CREAT | os.O_RDWR)
    os.write(unlinked, b"unlinked")
    os.unlink(linked.mountpoint / "unlinked")
    theirs = os.open(linked.mountpoint / "theirs", os.O_RDONLY)
    removed = os.open(linked.mountpoint / "removed", os.O_RDONLY)
    os.unlink(linked.mountpoint / "removed")
    directory = os.open(linked.mountpoint / "dir", os.O_DIRECTORY)
    for _ in range(2):
        replace(linked)
        time.sleep(1.1)  # the kernel asks for attributes again
        assert os.pread(ours, 100, 0) == b"ours"
        assert os.pread(theirs, 7000, 0) == b"theirs" * 1000
        assert os.pread(removed, 8000, 0) == b"removed" * 1000
        assert os.fstat(removed).st_size == 7000
        assert os.pread(unlinked, 100, 0) == b"unlinked"
        assert os.fstat(unlinked).st_size == 8
        assert os.fstat(ours).st_size == 4
        assert os.listdir(directory) == []
    os.pwrite(unlinked, b"UN", 0)
    assert os.pread(unlinked, 100, 0) == b"UNlinked"
    os.pwrite(ours, b"OURS and more", 0)
    for fd in (ours, unlinked, theirs, removed, directory):
        os.close(fd)
    linked.wait("durable")
    assert (linked.source / "ours").read_bytes() == b"OURS and more"
    assert sorted(os.listdir(linked.source)) == ["dir", "ours", "theirs"]


def test_a_working_directory_and_locks_outlive_the_daemon(linked: Node) -> None:
    script = """
import fcntl, os, sys
os.makedirs("deep/er")
os.chdir("deep/er")
lock = open("lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
fcntl.lockf(open("record", "w"), fcntl.LOCK_EX)
print("ready", flush=True)
sys.stdin.readline()
open("file", "w").write("hello")
print(os.getcwd().endswith("deep/er"), os.listdir(".") != [], flush=True)
sys.stdin.readline()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=linked.mountpoint, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as program:  # fmt: skip
        assert program.stdin is not None and program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        replace(linked)
        program.stdin.write("go on\n")
        program.stdin.flush()
        assert program.stdout.readline() == "True True\n"
        with (linked.mountpoint / "deep/er/lock").open() as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        program.stdin.write("end\n")
        program.stdin.flush()
    linked.wait("durable")
    assert (linked.source / "deep/er/file").read_text() == "hello"


def test_a_program_writes_on_while_no_daemon_is_alive(tmp_path: Path) -> None:
    with nodes(tmp_path, "ab", extra='[mount]\nfsync = "captured"\n') as (a, b):
        b.start_peer()
        a.mount()
        fd = os.open(a.mountpoint / "file", os.O_CREAT | os.O_RDWR)
        os.write(fd, b"before " + bytes(4096))
        keeper, daemon = a.keeper(), a.daemon()
        with mmap.mmap(fd, 4096) as mapped:  # it asks for the size, so not without a daemon
            os.pwrite(fd, b"x", 7)  # the first write after that asks for security.capability
            os.kill(keeper, signal.SIGSTOP)
            try:
                os.kill(daemon, signal.SIGKILL)
                eventually(lambda: not is_alive(daemon), "its death")
                assert os.pwrite(fd, b"and " * 500_000, 7) == 2_000_000
                mapped[0:6] = b"BEFORE"
                assert os.pread(fd, 11, 0) == b"BEFORE and "
            finally:
                os.kill(keeper, signal.SIGCONT)
        a.wait_for_another(daemon)
        os.close(fd)
        a.wait("durable")
        eventually(lambda: a.ls("file")[0]["replicas"] == ["b"], "its replica")
        wanted = b"BEFORE " + b"and " * 500_000
        assert (a.source / "file").read_bytes() == wanted


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_opens_are_counted_right_over_a_takeover(linked: Node) -> None:
    used = linked.report()["ram"]["used_bytes"]
    path = linked.mountpoint / "big"
    path.write_bytes(bytes(MIB) * 48)
    fds = [os.open(path, os.O_RDWR) for _ in range(3)]
    replace(linked)
    fds += [os.open(path, os.O_RDONLY)]
    for fd in fds:
        os.close(fd)
    os.unlink(path)
    eventually(
        lambda: linked.report()["ram"]["used_bytes"] < used + 16 * MIB, "giving its room back", 5
    )


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR], ids=["reading", "writing"])
def test_a_program_that_is_killed_while_no_daemon_is_there_leaves_nothing_open(
    tmp_path: Path, faulty_storage: FaultyStorage, flags: int
) -> None:
    """The kernel sends again what such a program waited for, and then closes what it opened."""
    (faulty_storage.backing / "file").write_bytes(b"of the source" * 1000)
    with nodes(tmp_path, source=faulty_storage.mountpoint) as (a,):
        a.mount()
        path = a.mountpoint / "file"
        program = [sys.executable, "-c", f"import os; os.open({str(path)!r}, {flags})"]
        keeper, daemon = a.keeper(), a.daemon()
        with faulty_storage.fault(Fault(hang=True, ops=("open", "read"), name="file")):
            opening = subprocess.Popen(program)
            eventually(lambda: faulty_storage.report().waiting, "the open")
            os.kill(keeper, signal.SIGSTOP)  # so that no daemon follows yet
            a.kill_only_daemon()
            opening.kill()
        os.kill(keeper, signal.SIGCONT)
        a.wait_for_another(daemon)
        assert opening.wait(timeout=10) == -signal.SIGKILL
        path.write_bytes(b"ours")
        a.wait("durable")
        eventually(lambda: run("evict", path, check=False).returncode == 0, "its last close", 5)


# --- the keeper -----------------------------------------------------------------------------------


def test_without_keeper_and_daemon_the_mount_is_gone_and_nothing_captured_is(linked: Node) -> None:
    (linked.mountpoint / "file").write_bytes(b"captured" * 1000)
    (linked.source / "later").write_bytes(b"of the source")
    linked.kill_daemon()
    with pytest.raises(OSError) as caught:
        eventually(lambda: os.stat(linked.mountpoint / "file") is None, timeout_s=5)
    assert caught.value.errno in (errno.ENOTCONN, errno.ECONNABORTED)  # the latter: under way
    done = run("status", linked.mountpoint, "-c", linked.config, check=False)
    assert done.returncode != 0
    assert "not running" in done.stderr
    linked.detach()
    linked.mount()
    assert (linked.mountpoint / "file").read_bytes() == b"captured" * 1000
    assert linked.report()["files"]["lost"] == 0


def test_status_says_that_the_keeper_is_gone(linked: Node) -> None:
    assert "keeper" not in linked.report()["data_path_reason"]
    os.kill(linked.keeper(), signal.SIGKILL)
    eventually(lambda: "keeper is gone" in linked.report()["data_path_reason"], "the news")
    (linked.mountpoint / "file").write_bytes(b"served as before")
    linked.wait("durable")


def test_a_mount_that_begins_after_another_counts_its_opens_from_nothing(linked: Node) -> None:
    """The kernel numbers the requests of each mount from the beginning."""
    for _ in range(2):
        fds = []
        for index in range(20):
            fds.append(os.open(linked.mountpoint / f"f{index}", os.O_CREAT | os.O_RDWR))
            os.write(fds[-1], b"%d" % index * 1000)
        for fd in fds:
            os.close(fd)
        linked.kill_mount()
        linked.mount()
    opened = [os.open(linked.mountpoint / f"f{index}", os.O_RDONLY) for index in range(20)]
    linked.wait("durable")
    for index, fd in enumerate(opened):
        done = run("evict", linked.mountpoint / f"f{index}", check=False)
        assert "open" in done.stderr, index
        os.close(fd)
        if index == 3:
            break
    for fd in opened[4:]:
        os.close(fd)


def test_a_daemon_that_cannot_start_any_more_ends_the_mount_and_keeps_the_data(
    tmp_path: Path,
) -> None:
    with nodes(tmp_path, "ab", extra='[mount]\nfsync = "captured"\n') as (a, _):
        a.mount()
        (a.mountpoint / "file").write_bytes(b"captured" * 1000)
        assert a.secret is not None
        secret = a.secret.read_text()
        a.secret.write_text("short")
        keeper = a.keeper()
        a.kill_only_daemon()
        patience_s = sum(PAUSES_S) + len(PAUSES_S) * 2 + 5
        eventually(lambda: not is_alive(keeper), "the keeper's end", patience_s)
        assert not os.path.ismount(a.mountpoint)
        assert "unmounted; what was captured is kept" in a.log
        a.secret.write_text(secret)
        a.mount()
        assert (a.mountpoint / "file").read_bytes() == b"captured" * 1000


def test_mounting_again_at_once_is_not_undone_by_the_keeper_before(linked: Node) -> None:
    for _ in range(3):
        linked.umount("none")
        linked.mount()
        time.sleep(0.2)
        assert os.path.ismount(linked.mountpoint)


# --- passthrough ----------------------------------------------------------------------------------


def test_a_file_that_outgrows_the_budget_is_written_whole(tmp_path: Path) -> None:
    with nodes(tmp_path, extra='[ram]\nlimit = "64MiB"\n[mount]\nfsync = "captured"\n') as (a,):
        a.mount()
        assert a.report()["data_path"] == "passthrough"
        piece = random.Random(SEED).randbytes(MIB)
        with (a.mountpoint / "big").open("wb", buffering=0) as file:
            for index in range(300):
                assert file.write(index.to_bytes(4, "big") + piece[4:]) == MIB
        (a.mountpoint / "next").write_bytes(b"through the daemon" * 1000)
        with (a.mountpoint / "big").open("rb", buffering=0) as file:
            for index in range(300):
                assert file.read(MIB) == index.to_bytes(4, "big") + piece[4:], index
        a.wait("durable", timeout_s=40)
        assert (a.source / "next").read_bytes() == b"through the daemon" * 1000
        assert (a.source / "big").stat().st_size == 300 * MIB
        with (a.source / "big").open("rb") as file:
            for index in range(300):
                assert file.read(MIB) == index.to_bytes(4, "big") + piece[4:], index
        assert "Traceback" not in a.log


def test_allocating_and_looking_for_holes(linked: Node) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(linked.mountpoint / "file", os.O_CREAT | os.O_RDWR)
    os.posix_fallocate(fd, 0, 3 * MIB)
    assert os.fstat(fd).st_size == 3 * MIB
    keep_size = 1
    assert libc.fallocate(fd, keep_size, ctypes.c_int64(0), ctypes.c_int64(8 * MIB)) == 0
    assert os.fstat(fd).st_size == 3 * MIB
    os.ftruncate(fd, 0)
    os.ftruncate(fd, 16 * MIB)
    os.pwrite(fd, b"data", 8 * MIB)
    begin = os.lseek(fd, 0, os.SEEK_DATA)
    assert begin <= 8 * MIB
    assert 8 * MIB < os.lseek(fd, begin, os.SEEK_HOLE) <= 16 * MIB
    os.close(fd)
    linked.wait("durable")
    found = (linked.source / "file").read_bytes()
    assert len(found) == 16 * MIB
    assert found[8 * MIB : 8 * MIB + 4] == b"data"


@pytest.mark.parametrize("from_source", [False, True], ids=["captured", "of the source"])
def test_copying_inside_the_kernel(linked: Node, from_source: bool) -> None:
    data = random.Random(SEED).randbytes(5 * MIB)
    at = linked.source if from_source else linked.mountpoint
    (at / "one").write_bytes(data)
    with (
        (linked.mountpoint / "one").open("rb") as one,
        (linked.mountpoint / "two").open("wb") as two,
    ):
        done = 0
        while done < len(data):
            done += os.copy_file_range(one.fileno(), two.fileno(), len(data) - done)
    assert (linked.mountpoint / "two").read_bytes() == data
    linked.wait("durable")
    assert (linked.source / "two").read_bytes() == data


def test_a_file_that_is_read_and_opened_for_writing_meanwhile_is_right_for_both(
    linked: Node,
) -> None:
    (linked.source / "file").write_bytes(b"old " * 5000)
    reader = os.open(linked.mountpoint / "file", os.O_RDONLY)
    assert os.pread(reader, 4, 0) == b"old "
    writer = os.open(linked.mountpoint / "file", os.O_RDWR)
    os.pwrite(writer, b"new ", 0)
    assert os.pread(writer, 8, 0) == b"new old "
    assert os.pread(reader, 4, 0) == b"old "
    again = os.open(linked.mountpoint / "file", os.O_RDONLY)
    assert os.pread(again, 8, 0) == b"new old "
    for fd in (reader, writer, again):
        os.close(fd)
    linked.wait("durable")
    assert (linked.source / "file").read_bytes() == b"new " + b"old " * 4999
    assert (linked.mountpoint / "file").read_bytes() == b"new " + b"old " * 4999


def test_many_writers_of_a_file_that_is_read_write_one_file(linked: Node) -> None:
    (linked.source / "file").write_bytes(bytes(4 * MIB))
    reader = os.open(linked.mountpoint / "file", os.O_RDONLY)
    failed: list[OSError] = []

    def write(index: int) -> None:
        try:
            fd = os.open(linked.mountpoint / "file", os.O_RDWR)
            os.pwrite(fd, bytes([index]) * 1000, index * 1000)
            os.close(fd)
        except OSError as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(index,)) for index in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    os.close(reader)
    linked.wait("durable")
    wanted = b"".join(bytes([index]) * 1000 for index in range(9))
    assert (linked.source / "file").read_bytes() == wanted + bytes(4 * MIB - 9000)
    assert [file["path"] for file in linked.ls()] == ["file"]


def test_a_file_that_is_read_survives_a_takeover_and_a_writer_after_it(linked: Node) -> None:
    (linked.source / "file").write_bytes(b"old " * 5000)
    reader = os.open(linked.mountpoint / "file", os.O_RDONLY)
    replace(linked)
    with (linked.mountpoint / "file").open("r+b") as file:
        file.write(b"new ")
    assert os.pread(reader, 4, 0) == b"old "
    os.close(reader)
    linked.wait("durable")
    assert (linked.source / "file").read_bytes() == b"new " + b"old " * 4999


@pytest.mark.parametrize("size", [0, 7])
def test_a_file_that_is_read_can_be_truncated_by_its_path(linked: Node, size: int) -> None:
    (linked.source / "file").write_bytes(b"0123456789")
    reader = os.open(linked.mountpoint / "file", os.O_RDONLY)
    os.truncate(linked.mountpoint / "file", size)
    assert (linked.mountpoint / "file").read_bytes() == b"0123456789"[:size]
    assert (linked.mountpoint / "file").stat().st_size == size
    os.close(reader)
    linked.wait("durable")
    assert (linked.source / "file").read_bytes() == b"0123456789"[:size]


def test_appending_to_a_durable_file_that_was_evicted(linked: Node) -> None:
    path = linked.mountpoint / "log"
    path.write_bytes(b"one\n")
    linked.wait("durable")
    run("evict", path)
    for line in (b"two\n", b"three\n"):
        fd = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.write(fd, line)
        os.close(fd)
    assert path.read_bytes() == b"one\ntwo\nthree\n"
    linked.wait("durable")
    assert (linked.source / "log").read_bytes() == b"one\ntwo\nthree\n"


def test_stores_through_a_map_after_fsync_reach_the_source(linked: Node) -> None:
    """The pages are writable already: neither a fault nor a time stamp tells of the store."""
    fd = os.open(linked.mountpoint / "file", os.O_CREAT | os.O_RDWR)
    os.ftruncate(fd, 8192)
    mapped = mmap.mmap(fd, 8192)
    mapped[0:5] = b"first"
    os.fsync(fd)
    assert (linked.source / "file").read_bytes()[:5] == b"first"
    mapped[0:5] = b"later"
    mapped.close()
    os.close(fd)
    linked.wait("durable")
    eventually(lambda: (linked.source / "file").read_bytes()[:5] == b"later", "the later store", 5)
