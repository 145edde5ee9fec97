"""The shared file system fails or hangs: programs see nothing of it, and all arrives later."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cachexfs.demo.faults import Fault
from cachexfs.demo.faulty_storage import FaultyStorage
from cachexfs.pfs import renameat2
from tests.cluster_of_nodes import Node, eventually, listed, nodes, run

SLOW_S = 5.0
"""No call of a program may take longer: the time limit of the source is 1 s here, and a call may
have to find out twice."""

EXCHANGE, AT_FDCWD = 2, -100
"""RENAME_EXCHANGE of linux/fs.h, AT_FDCWD of linux/fcntl.h."""

FAST = '[mount]\npfs_timeout = "1s"\n'


@pytest.fixture
def ill(tmp_path: Path, faulty_storage: FaultyStorage) -> Iterator[tuple[Node, Node]]:
    """Node a, mounted over storage that fails on demand, with its replicas at node b."""
    with nodes(tmp_path, "ab", source=faulty_storage.mountpoint, extra=FAST) as (a, b):
        b.start_peer()
        a.mount()
        try:
            yield a, b
        finally:
            faulty_storage.clear()


def save(at: Path, step: int) -> None:
    """One checkpoint: a directory, shards, one renamed into place, a lock, a pointer."""
    directory = at / f"step-{step}"
    directory.mkdir()
    for shard in range(3):
        (directory / f"shard-{shard}").write_bytes(b"%d.%d " % (step, shard) * 20_000)
    with (directory / "meta.tmp").open("wb") as file:
        file.write(b"meta %d" % step)
        file.flush()
        os.fsync(file.fileno())
    (directory / "meta.tmp").rename(directory / "meta")
    (directory / "lock").write_bytes(b"")
    (directory / "lock").unlink()
    (at / "latest").write_text(directory.name)
    assert sorted(os.listdir(directory)) == ["meta", "shard-0", "shard-1", "shard-2"]
    assert (directory / "shard-1").stat().st_size == 20_000 * len(b"%d.1 " % step)


def whole(at: Path, step: int) -> bool:
    """Whether a checkpoint is there as `save` made it."""
    directory = at / f"step-{step}"
    try:
        return (
            sorted(os.listdir(directory)) == ["meta", "shard-0", "shard-1", "shard-2"]
            and (directory / "meta").read_bytes() == b"meta %d" % step
            and all(
                (directory / f"shard-{shard}").read_bytes() == b"%d.%d " % (step, shard) * 20_000
                for shard in range(3)
            )
        )
    except FileNotFoundError:
        return False


def timed(call: Callable[[], Any]) -> float:
    """How long a call took, in seconds."""
    begin = time.monotonic()
    call()
    return time.monotonic() - begin


def codes(node: Node) -> set[str]:
    """The problems that `status` names."""
    return {problem["code"] for problem in node.report()["problems"]}


def is_in_order(at: Path) -> bool:
    """Whether the checkpoint that `latest` names is whole, if there is one."""
    try:
        latest = (at / "latest").read_text()
    except FileNotFoundError:
        return True
    return not latest or whole(at, int(latest.removeprefix("step-")))


CODES = {"EIO": "SourceFailing", "EDQUOT": "SourceQuotaExceeded", "ENOSPC": "SourceFull"}


@pytest.mark.parametrize("operation", ["write", "create", "fsync", "rename", "mkdir", "unlink"])
@pytest.mark.parametrize("code", list(CODES))
def test_an_error_of_the_source_stays_behind_the_mount(
    ill: tuple[Node, Node], faulty_storage: FaultyStorage, code: str, operation: str
) -> None:
    a, _ = ill
    save(a.mountpoint, 1)
    a.wait("durable")
    faulty_storage.set_fault(Fault(errno=code, ops=(operation,)))
    for step in (2, 3):
        assert timed(lambda step=step: save(a.mountpoint, step)) < 3 * SLOW_S  # type: ignore[misc]
    shutil.rmtree(a.mountpoint / "step-1")
    assert not (a.mountpoint / "step-1").exists()
    if operation != "unlink":
        eventually(lambda: CODES[code] in codes(a), "the problem in status", 5)
    assert is_in_order(faulty_storage.backing)
    assert whole(a.mountpoint, 2) and whole(a.mountpoint, 3)
    faulty_storage.clear()
    a.umount()
    assert whole(a.source, 2) and whole(a.source, 3)
    assert (a.source / "latest").read_text() == "step-3"
    assert listed(a.source) == ["latest", "step-2", "step-3"]


def test_everything_of_the_source_fails(
    ill: tuple[Node, Node], faulty_storage: FaultyStorage
) -> None:
    a, _ = ill
    save(a.mountpoint, 1)
    a.wait("durable")
    faulty_storage.set_fault(Fault(errno="EIO"))
    assert timed(lambda: save(a.mountpoint, 2)) < 3 * SLOW_S
    a.wait("replicated")
    assert "SourceFailing" in codes(a)
    faulty_storage.clear()
    a.umount()
    assert whole(a.source, 1) and whole(a.source, 2)


def test_the_source_hangs(ill: tuple[Node, Node], faulty_storage: FaultyStorage) -> None:
    a, _ = ill
    save(a.mountpoint, 1)
    a.wait("durable")
    faulty_storage.set_fault(Fault(hang=True))
    for step in (2, 3, 4):
        took = timed(lambda step=step: save(a.mountpoint, step))  # type: ignore[misc]
        assert took < 3 * SLOW_S, f"step {step} took {took:.1f} s"
    eventually(lambda: "SourceNotAnswering" in codes(a), "the problem in status", 5)
    a.wait("replicated")
    report = a.report()
    assert report["files"]["captured"] == 0 and report["state"] == "degraded"
    shutil.rmtree(a.mountpoint / "step-2")
    assert sorted(os.listdir(a.mountpoint)) == ["latest", "step-1", "step-3", "step-4"]
    assert (a.mountpoint / "step-1" / "meta").read_bytes() == b"meta 1"  # in RAM still
    faulty_storage.clear()
    a.umount()
    assert all(whole(a.source, step) for step in (1, 3, 4))
    assert listed(a.source) == ["latest", "step-1", "step-3", "step-4"]


def test_removing_and_renaming_what_is_durable_while_the_source_hangs(
    ill: tuple[Node, Node], faulty_storage: FaultyStorage
) -> None:
    a, _ = ill
    for step in (1, 2):
        save(a.mountpoint, step)
    a.wait("durable")
    faulty_storage.set_fault(Fault(hang=True))
    assert timed(lambda: shutil.rmtree(a.mountpoint / "step-1")) < SLOW_S
    assert timed(lambda: (a.mountpoint / "step-2").rename(a.mountpoint / "best")) < SLOW_S
    assert timed(lambda: (a.mountpoint / "best" / "meta").rename(a.mountpoint / "m")) < SLOW_S
    assert timed(lambda: (a.mountpoint / "latest").write_text("best")) < SLOW_S
    os.link(a.mountpoint / "m", a.mountpoint / "m2")
    assert sorted(os.listdir(a.mountpoint)) == ["best", "latest", "m", "m2"]
    assert (a.mountpoint / "best" / "shard-1").read_bytes() == b"2.1 " * 20_000
    faulty_storage.clear()
    a.umount()
    assert listed(a.source) == ["best", "latest", "m", "m2"]
    assert sorted(os.listdir(a.source / "best")) == ["shard-0", "shard-1", "shard-2"]
    assert (a.source / "m2").read_bytes() == b"meta 2"


def test_what_was_never_seen_is_not_called_missing_while_the_source_hangs(
    ill: tuple[Node, Node], faulty_storage: FaultyStorage
) -> None:
    a, _ = ill
    deep = faulty_storage.backing / "run" / "deep" / "deeper"
    deep.mkdir(parents=True)
    (deep / "checkpoint").write_bytes(b"old")
    assert os.listdir(a.mountpoint) == ["run"]
    faulty_storage.set_fault(Fault(hang=True))
    for name in ("run/deep/deeper/checkpoint", "run/deep/deeper"):
        begin = time.monotonic()
        with pytest.raises(OSError) as caught:
            (a.mountpoint / name).stat()
        assert caught.value.errno != errno.ENOENT and time.monotonic() - begin < SLOW_S
    faulty_storage.clear()
    eventually(lambda: a.report()["state"] == "ok", "being well", 5)
    assert (a.mountpoint / "run/deep/deeper/checkpoint").read_bytes() == b"old"


def test_many_hanging_calls_do_not_block_what_comes_after(
    ill: tuple[Node, Node], faulty_storage: FaultyStorage
) -> None:
    a, _ = ill
    faulty_storage.set_fault(Fault(hang=True, ops=("create", "write", "mkdir", "unlink")))
    for index in range(60):
        (a.mountpoint / f"file-{index}").write_bytes(b"%d" % index)
    for index in range(10):
        (a.mountpoint / f"directory-{index}").mkdir()
    faulty_storage.clear()
    a.wait("durable")
    a.umount()
    assert all((a.source / f"file-{i}").read_bytes() == b"%d" % i for i in range(60))
    assert all((a.source / f"directory-{i}").is_dir() for i in range(10))


def test_over_quota_on_the_pointer_only(
    ill: tuple[Node, Node], faulty_storage: FaultyStorage
) -> None:
    a, _ = ill
    save(a.mountpoint, 1)
    a.wait("durable")
    faulty_storage.set_fault(
        Fault(errno="EDQUOT", ops=("write", "create"), name=".cachexfs-*"),
    )
    (a.mountpoint / "latest").write_text("step-2")
    a.wait("replicated", "latest")
    eventually(lambda: "SourceQuotaExceeded" in codes(a), "the problem in status", 5)
    assert (faulty_storage.backing / "latest").read_text() == "step-1"
    (pending,) = a.report()["pending"]
    assert pending["path"] == "latest" and pending["replicas"] == ["b"]
    faulty_storage.clear()
    a.wait("durable", "latest")
    assert (a.source / "latest").read_text() == "step-2"


def test_one_transient_error_is_tried_again(
    ill: tuple[Node, Node], faulty_storage: FaultyStorage
) -> None:
    a, _ = ill
    for operation in ("create", "write", "fsync", "rename", "fsyncdir", "setattr"):
        faulty_storage.set_fault(Fault(errno="EIO", ops=(operation,), count=1))
        (a.mountpoint / operation).write_bytes(b"x" * 100_000)
        a.wait("durable", operation)
        assert (a.source / operation).read_bytes() == b"x" * 100_000
    eventually(lambda: a.report()["state"] == "ok", "being well", 5)


def test_the_peer_is_down_and_the_source_fails(
    tmp_path: Path, faulty_storage: FaultyStorage
) -> None:
    extra = '[mount]\npfs_timeout = "1s"\nfsync = "captured"\n'
    with nodes(tmp_path, "ab", source=faulty_storage.mountpoint, extra=extra) as (a, b):
        a.mount()
        faulty_storage.set_fault(Fault(errno="ENOSPC", ops=("write", "create", "mkdir")))
        assert timed(lambda: save(a.mountpoint, 1)) < 3 * SLOW_S
        eventually(lambda: {"SourceFull", "PeerUnreachable"} <= codes(a), "both problems", 10)
        report = a.report()
        assert report["files"]["captured"] == 5 and report["unsafe_bytes"] > 0
        assert all(file["state"] == "captured" for file in report["pending"])
        faulty_storage.clear()
        b.start_peer()
        a.umount()
        assert whole(a.source, 1)


def test_fsync_at_level_replicated_returns_when_durable_though_the_peer_is_down(
    tmp_path: Path,
) -> None:
    with nodes(tmp_path, "ab") as (a, _):
        a.mount()
        with (a.mountpoint / "file").open("wb") as file:
            file.write(b"safe")
            file.flush()
            assert timed(lambda: os.fsync(file.fileno())) < SLOW_S
        assert a.ls("file")[0]["state"] == "durable"


def test_the_daemon_ends_though_the_source_hangs(
    ill: tuple[Node, Node], faulty_storage: FaultyStorage
) -> None:
    a, _ = ill
    (a.mountpoint / "kept").write_bytes(b"kept")
    a.wait("durable")
    faulty_storage.set_fault(Fault(hang=True))
    (a.mountpoint / "later").write_bytes(b"later")
    a.wait("replicated", "later")
    time.sleep(0.5)
    assert timed(lambda: a.umount("replicated")) < 2 * SLOW_S
    assert not os.path.ismount(a.mountpoint)
    faulty_storage.clear()
    a.mount()
    assert (a.mountpoint / "later").read_bytes() == b"later"
    a.umount()
    assert (a.source / "later").read_bytes() == b"later"


def test_what_moved_before_the_source_hung_is_still_there(
    ill: tuple[Node, Node], faulty_storage: FaultyStorage
) -> None:
    a, _ = ill
    at = a.mountpoint
    for name in ("file", "linked", "queued", "swapped", "other"):
        (at / name).write_bytes(name.encode())
    (at / "directory" / "deep").mkdir(parents=True)
    a.wait("durable")
    os.listdir(at)
    (at / "file").rename(at / "moved")
    os.link(at / "linked", at / "linked2")
    (at / "directory").rename(at / "directory2")
    (at / "queued").write_bytes(b"queued")
    (at / "queued").rename(at / "queued2")
    a.wait("durable")
    for name in ("moved", "linked2", "queued2"):
        run("evict", at / name)
    names = {"moved", "linked", "linked2", "directory2", "queued2", "swapped", "other"}
    time.sleep(1.2)  # until the kernel asks again
    faulty_storage.set_fault(Fault(errno="EIO"))
    for name in names:
        (at / name).lstat()
    assert set(os.listdir(at)) == names
    faulty_storage.clear()


def test_names_are_swapped_and_written_again_while_the_source_fails(
    ill: tuple[Node, Node], faulty_storage: FaultyStorage
) -> None:
    a, _ = ill
    at = a.mountpoint
    (at / "durable").write_bytes(b"durable")
    a.wait("durable")
    faulty_storage.set_fault(Fault(errno="EIO", ops=("create", "write", "rename")))
    for name in ("x", "y"):
        (at / name).write_bytes(name.encode())
    for left, right in (("x", "y"), ("x", "durable")):
        renameat2.rename(AT_FDCWD, bytes(at / left), AT_FDCWD, bytes(at / right), EXCHANGE)
    assert [(at / name).read_bytes() for name in ("x", "y", "durable")] == [b"durable", b"x", b"y"]
    (at / "y").write_bytes(b"again")
    (at / "durable").write_bytes(b"new")
    faulty_storage.clear()
    a.wait("durable")
    a.umount()
    assert [(a.source / name).read_bytes() for name in ("x", "y", "durable")] == [
        b"durable", b"again", b"new",
    ]  # fmt: skip


@pytest.mark.parametrize("fault", [Fault(errno="EIO"), Fault(hang=True)], ids=["EIO", "hang"])
def test_attributes_are_changed_while_the_source_is_ill(
    ill: tuple[Node, Node], faulty_storage: FaultyStorage, fault: Fault
) -> None:
    a, _ = ill
    at = a.mountpoint
    (at / "directory").mkdir()
    (at / "file").write_bytes(b"file")
    a.wait("durable")
    run("evict", at / "file")
    os.listdir(at)
    faulty_storage.set_fault(fault)
    for name in ("directory", "file"):
        (at / name).chmod(0o700)
        os.utime(at / name, ns=(10**18, 10**18))
        found = (at / name).stat()
        assert found.st_mode & 0o777 == 0o700 and found.st_mtime_ns == 10**18
    faulty_storage.clear()
    a.umount()
    for name in ("directory", "file"):
        found = (a.source / name).stat()
        assert found.st_mode & 0o777 == 0o700 and found.st_mtime_ns == 10**18, name


def test_a_listing_that_was_overtaken_shows_what_is_true(
    ill: tuple[Node, Node], faulty_storage: FaultyStorage
) -> None:
    a, _ = ill
    at = a.mountpoint
    faulty_storage.set_fault(Fault(delay_s=0.02, ops=("readdir", "getattr", "lookup")))
    for index in range(20):
        (at / "tmp").write_bytes(b"%d" % index)
        (at / "tmp").rename(at / "final")
        assert os.listdir(at) == ["final"], index
    faulty_storage.clear()


@pytest.mark.parametrize("fault", [Fault(errno="EIO"), Fault(hang=True)], ids=["EIO", "hang"])
def test_files_of_the_source_are_replaced_while_it_is_ill(
    ill: tuple[Node, Node], faulty_storage: FaultyStorage, fault: Fault
) -> None:
    a, _ = ill
    at = a.mountpoint
    for name in ("truncated", "renamed over", "removed", "evicted"):
        (faulty_storage.backing / name).write_text("old")
    (at / "evicted").write_text("written here")
    a.wait("durable")
    run("evict", at / "evicted")
    os.listdir(at)
    (at / "removed").stat()
    faulty_storage.set_fault(fault)
    (at / "truncated").write_text("new")
    (at / "evicted").write_text("new")
    (at / "tmp").write_text("new")
    (at / "tmp").rename(at / "renamed over")
    (at / "removed").unlink()
    names = ["evicted", "renamed over", "truncated"]
    assert sorted(os.listdir(at)) == names
    assert [(at / name).read_text() for name in names] == ["new"] * 3
    a.wait("replicated")
    faulty_storage.clear()
    a.umount()
    assert listed(a.source) == names
    assert [(a.source / name).read_text() for name in names] == ["new"] * 3


def test_a_source_slower_than_the_time_limit(
    ill: tuple[Node, Node], faulty_storage: FaultyStorage
) -> None:
    a, _ = ill
    save(a.mountpoint, 1)
    a.wait("durable")
    faulty_storage.set_fault(
        Fault(delay_s=1.5, ops=("create", "write", "fsync", "rename", "mkdir", "unlink", "lookup"))
    )
    for step in (2, 3):
        save(a.mountpoint, step)
    a.wait("replicated")
    time.sleep(4)
    faulty_storage.clear()
    a.umount()
    assert all(whole(a.source, step) for step in (1, 2, 3))
    assert (a.source / "latest").read_text() == "step-3"


def test_sizes_are_not_made_up_while_the_source_fails(
    ill: tuple[Node, Node], faulty_storage: FaultyStorage
) -> None:
    a, _ = ill
    (faulty_storage.backing / "old").write_bytes(b"x" * 777)
    (a.mountpoint / "evicted").write_bytes(b"x" * 12345)
    a.wait("durable")
    run("evict", a.mountpoint / "evicted")
    os.listdir(a.mountpoint)
    fds = [os.open(a.mountpoint / name, os.O_PATH) for name in ("evicted", "old")]
    time.sleep(1.2)  # until the kernel asks again
    with faulty_storage.fault(Fault(errno="EIO")):
        assert [os.fstat(fd).st_size for fd in fds] == [12345, 777]
        assert [(a.mountpoint / n).stat().st_size for n in ("evicted", "old")] == [12345, 777]
    for fd in fds:
        os.close(fd)


def test_mounting_while_the_source_hangs_says_so_and_goes_on_without_it(
    ill: tuple[Node, Node], faulty_storage: FaultyStorage
) -> None:
    a, _ = ill
    (a.mountpoint / "file").write_bytes(b"file")
    faulty_storage.set_fault(Fault(hang=True, ops=("create", "write")))
    a.umount("replicated")
    faulty_storage.set_fault(Fault(hang=True))
    done = run("mount", a.source, a.mountpoint, "-c", a.config, check=False)
    assert done.returncode == 0 and "has not answered" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    faulty_storage.clear()
    assert (a.mountpoint / "file").read_bytes() == b"file"


@pytest.mark.parametrize("mode", ["rb", "r+b"])
def test_a_file_can_be_opened_while_another_open_copies_it(
    tmp_path: Path, faulty_storage: FaultyStorage, mode: str
) -> None:
    content = os.urandom(1 << 20)
    with nodes(tmp_path, source=faulty_storage.mountpoint) as (a,), ThreadPoolExecutor() as pool:
        (faulty_storage.backing / "file").write_bytes(content)
        a.mount()
        with faulty_storage.fault(Fault(hang=True, ops=("read",), name="file")):
            first = pool.submit((a.mountpoint / "file").open, "r+b")
            eventually(lambda: faulty_storage.report().waiting, "the copying")
            second = (a.mountpoint / "file").open(mode)
        with first.result(timeout=SLOW_S) as one, second as other:
            one.write(b"new")
            one.flush()
            assert other.read() == b"new" + content[3:]
        a.wait("durable")
        assert (faulty_storage.backing / "file").read_bytes() == b"new" + content[3:]
