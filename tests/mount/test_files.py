"""Files in the mount: what a program does with one, and what the source has of it then."""

from __future__ import annotations

import errno
import mmap
import os
import time
from pathlib import Path

import pytest

from tests.cluster_of_nodes import Node, eventually


def test_a_file_created_read_only_is_settled_at_its_close(node: Node) -> None:
    os.close(os.open(node.mountpoint / "empty", os.O_RDONLY | os.O_CREAT, 0o644))
    node.wait("durable")
    assert (node.source / "empty").read_bytes() == b""


def test_an_unlinked_file_is_readable_and_writable_until_it_is_closed(node: Node) -> None:
    path = node.mountpoint / "file"
    path.write_bytes(b"before")
    fd = os.open(path, os.O_RDWR)
    path.unlink()
    assert os.fstat(fd).st_nlink == 0
    assert os.pwrite(fd, b"after!", 0) == 6
    assert os.pread(fd, 100, 0) == b"after!"
    os.close(fd)
    assert os.listdir(node.mountpoint) == []
    node.wait("durable")
    assert os.listdir(node.source) == []


def test_a_file_of_the_source_that_is_unlinked_while_open_can_be_written(node: Node) -> None:
    (node.source / "file").write_bytes(b"theirs")
    fd = os.open(node.mountpoint / "file", os.O_RDWR)
    (node.mountpoint / "file").unlink()
    assert (os.fstat(fd).st_size, os.fstat(fd).st_nlink) == (6, 0)
    os.pwrite(fd, b"X", 0)
    assert os.pread(fd, 100, 0) == b"Xheirs"
    os.close(fd)
    assert os.listdir(node.source) == []


def test_a_file_of_the_source_is_rewritten_in_place(node: Node) -> None:
    (node.source / "file").write_bytes(b"0123456789" * 1000)
    with (node.mountpoint / "file").open("r+b") as file:
        file.seek(5000)
        file.write(b"new")
    node.wait("durable")
    wanted = bytearray(b"0123456789" * 1000)
    wanted[5000:5003] = b"new"
    assert (node.source / "file").read_bytes() == wanted


def test_appending_to_an_evicted_file_keeps_what_was_there(node: Node) -> None:
    path = node.mountpoint / "log"
    path.write_bytes(b"one\n")
    before = path.stat().st_ino
    node.wait("durable")
    evict(node, "log")
    assert path.stat().st_ino == before
    assert path.read_bytes() == b"one\n"
    with path.open("ab") as file:
        file.write(b"two\n")
    assert path.stat().st_ino == before
    node.wait("durable")
    assert (node.source / "log").read_bytes() == b"one\ntwo\n"


def evict(node: Node, path: str) -> None:
    """Give up the RAM copy of a durable file."""
    from cachexfs.client import of_path

    client, below = of_path(str(node.mountpoint / path))
    client.ask("evict", paths=[below])


@pytest.mark.parametrize("evicted", [False, True], ids=["kept", "evicted"])
@pytest.mark.parametrize("how", ["in place", "renamed over"])
def test_what_another_node_writes_over_a_durable_file_is_seen(
    node: Node, how: str, evicted: bool
) -> None:
    (node.mountpoint / "file").write_bytes(b"ours")
    node.wait("durable")
    if evicted:
        evict(node, "file")
    theirs = node.source / ("file" if how == "in place" else "other")
    theirs.write_bytes(b"theirs, longer")
    theirs.rename(node.source / "file")
    seen = node.mountpoint / "file"
    eventually(lambda: seen.read_bytes() == b"theirs, longer", "the new content", 3)
    assert seen.stat().st_size == 14


def test_what_another_node_deletes_is_gone_here(node: Node) -> None:
    (node.mountpoint / "file").write_bytes(b"ours")
    node.wait("durable")
    (node.source / "file").unlink()
    eventually(lambda: not (node.mountpoint / "file").exists(), "its end", 3)
    (node.mountpoint / "file").write_bytes(b"again")
    node.wait("durable")
    assert (node.source / "file").read_bytes() == b"again"


def test_hard_links_that_are_rewritten_stay_one_file(node: Node) -> None:
    (node.source / "one").write_bytes(b"old")
    os.link(node.source / "one", node.source / "two")
    with (node.mountpoint / "one").open("r+b") as file:
        file.write(b"new")
    assert (node.mountpoint / "two").read_bytes() == b"new"
    node.wait("durable")
    assert (node.source / "two").read_bytes() == b"new"
    assert (node.source / "one").stat().st_ino == (node.source / "two").stat().st_ino


def test_a_shared_map_is_seen_by_reads_and_reaches_the_source(node: Node) -> None:
    path = node.mountpoint / "map"
    with path.open("w+b") as file:
        file.truncate(10_000)
        with mmap.mmap(file.fileno(), 10_000) as mapped:
            mapped[5000:5005] = b"hello"
            assert os.pread(file.fileno(), 5, 5000) == b"hello"
            mapped.flush()
            assert path.read_bytes()[5000:5005] == b"hello"
    node.wait("durable")
    assert (node.source / "map").read_bytes()[5000:5005] == b"hello"


def test_a_reader_sees_the_bytes_of_a_write_only_descriptor(node: Node) -> None:
    path = node.mountpoint / "growing"
    writer = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(writer, b"a" * 5000)
    reader = os.open(path, os.O_RDONLY)
    assert os.pread(reader, 10_000, 0) == b"a" * 5000
    os.pwrite(writer, b"b" * 100, 0)
    os.pwrite(writer, b"c" * 5000, 5000)
    assert os.pread(reader, 20_000, 0) == b"b" * 100 + b"a" * 4900 + b"c" * 5000
    os.close(writer)
    os.close(reader)


def test_direct_io_with_aligned_writes(node: Node) -> None:
    path = node.mountpoint / "direct"
    block = mmap.mmap(-1, 8192)
    block[:] = b"d" * 8192
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o644)
    assert os.write(fd, block) == 8192
    os.close(fd)
    with path.open("ab") as tail:
        tail.write(b"tail")
    node.wait("durable")
    assert (node.source / "direct").read_bytes() == b"d" * 8192 + b"tail"


def test_a_sparse_file_stays_sparse(node: Node) -> None:
    with (node.mountpoint / "sparse").open("wb") as file:
        file.truncate(64 << 20)
        file.seek(32 << 20)
        file.write(b"data")
    assert (node.mountpoint / "sparse").stat().st_blocks * 512 < 8 << 20
    node.wait("durable")
    found = (node.source / "sparse").stat()
    assert found.st_size == 64 << 20
    assert found.st_blocks * 512 < 8 << 20  # a huge page in RAM is 2 MiB of data


def test_a_child_that_closes_its_copy_does_not_publish_half_a_file(node: Node) -> None:
    path = node.mountpoint / "shared"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(fd, b"first half, ")
    if (child := os.fork()) == 0:
        os.close(fd)
        os._exit(0)
    os.waitpid(child, 0)
    time.sleep(0.3)
    assert not (node.source / "shared").exists()
    os.write(fd, b"second half")
    os.close(fd)
    node.wait("durable")
    assert (node.source / "shared").read_bytes() == b"first half, second half"


def test_a_rewritten_pointer_is_published_in_its_last_state(node: Node) -> None:
    path = node.mountpoint / "latest"
    for step in range(50):
        path.write_text(f"step {step}")
    node.wait("durable")
    assert (node.source / "latest").read_text() == "step 49"
    assert [name for name in os.listdir(node.source) if name.startswith(".")] == []


def test_df_and_du_tell_the_truth(node: Node) -> None:
    mine, theirs = os.statvfs(node.mountpoint), os.statvfs(node.source)
    assert mine.f_blocks == theirs.f_blocks
    assert mine.f_bsize == theirs.f_bsize
    assert mine.f_files == theirs.f_files
    assert mine.f_bavail > 0
    (node.mountpoint / "file").write_bytes(b"x" * 100_000)
    assert (node.mountpoint / "file").stat().st_blocks * 512 >= 100_000


def test_names_that_are_ours_on_the_source_are_refused(node: Node) -> None:
    with pytest.raises(PermissionError):
        (node.mountpoint / ".cachexfs-x").write_bytes(b"")
    with pytest.raises(OSError) as caught:
        (node.mountpoint / ("n" * 300)).write_bytes(b"")
    assert caught.value.errno == errno.ENAMETOOLONG


def test_the_inode_number_outlives_publishing(node: Node) -> None:
    path: Path = node.mountpoint / "file"
    path.write_bytes(b"x")
    before = path.stat().st_ino
    node.wait("durable")
    time.sleep(1.1)  # the kernel asks again
    assert path.stat().st_ino == before
