"""Reports from people who save checkpoints, each made a test that carries its number."""

from __future__ import annotations

import mmap
import os
import threading
import time
from pathlib import Path

import pytest

from cachexfs.demo.faults import Fault
from cachexfs.demo.faulty_storage import FaultyStorage
from tests.cluster_of_nodes import Node, eventually, nodes
from tests.mount.conftest import Place


def test_case_01_the_steps_of_safetensors(place: Place) -> None:
    """0600 create, final size first, write, rename while open over a file, a late flush."""
    final = place.mine / "model.safetensors"
    final.write_bytes(b"the one before")
    temporary = place.mine / ".tmpAbC123"
    fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.ftruncate(fd, 1_000_000)
    os.pwrite(fd, b"h" * 100, 0)
    os.pwrite(fd, b"t" * 999_900, 100)
    temporary.chmod(0o644)
    temporary.rename(final)
    os.close(fd)
    assert final.read_bytes() == b"h" * 100 + b"t" * 999_900
    place.publish()
    eventually(lambda: (place.source / final.name).stat().st_size == 1_000_000, "the new one")
    assert (place.source / final.name).read_bytes() == final.read_bytes()
    assert (place.source / final.name).stat().st_mode & 0o777 == 0o644
    eventually(lambda: os.listdir(place.source) == [final.name], "nothing else")


@pytest.mark.parametrize("flags", [mmap.MAP_SHARED, mmap.MAP_PRIVATE], ids=["shared", "private"])
@pytest.mark.parametrize("where", ["captured", "on the source"])
def test_case_02_every_file_can_be_mapped(place: Place, where: str, flags: int) -> None:
    directory = place.mine if where == "captured" else place.source
    (directory / "file").write_bytes(b"content" * 1000)
    with (place.mine / "file").open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, flags=flags, prot=mmap.PROT_READ)
    assert mapped[:] == b"content" * 1000
    mapped.close()


def test_case_08_another_mount_sees_the_right_size(tmp_path: Path) -> None:
    with nodes(tmp_path, "ab") as (a, b):
        for node in (a, b):
            node.members, node.secret = [], None
            node.mount()
        (a.mountpoint / "shard").write_bytes(b"x" * 1_000_000)
        a.wait("durable")
        eventually(lambda: (b.mountpoint / "shard").exists(), "the file at the other", 3)
        assert (b.mountpoint / "shard").stat().st_size == 1_000_000
        assert (b.mountpoint / "shard").read_bytes() == b"x" * 1_000_000


def test_case_14_the_room_of_an_unlinked_open_file_comes_back(node: Node) -> None:
    with (node.mountpoint / "file").open("wb") as file:
        file.write(b"x" * 50_000_000)
        file.flush()
        (node.mountpoint / "file").unlink()
        assert node.report()["ram"]["used_bytes"] >= 50_000_000
    eventually(lambda: node.report()["ram"]["used_bytes"] < 20_000_000, "the room")


def test_case_17_a_transient_error_at_the_close_is_not_seen(
    tmp_path: Path, faulty_storage: FaultyStorage
) -> None:
    with nodes(tmp_path, source=faulty_storage.mountpoint) as (node,):
        node.mount()
        faulty_storage.set_fault(Fault(errno="EIO", ops=("write", "create", "fsync"), count=2))
        (node.mountpoint / "file").write_bytes(b"content")
        node.wait("durable")
        assert (node.source / "file").read_bytes() == b"content"


def test_case_20_changes_by_others_under_open_files_never_hang(place: Place) -> None:
    (place.mine / "file").write_bytes(b"ours")
    place.publish()
    readers = [(place.mine / "file").open("rb") for _ in range(5)]
    for number in range(5):
        (place.source / "file").write_bytes(b"theirs %d" % number)
        time.sleep(0.2)
        assert (place.mine / "file").stat()
    for reader in readers:
        reader.read()
        reader.close()
    eventually(lambda: (place.mine / "file").read_bytes() == b"theirs 4", "the last", 3)


def test_case_21_statfs_is_never_zero(place: Place) -> None:
    found = os.statvfs(place.mine)
    assert min(found.f_blocks, found.f_bsize, found.f_files, found.f_namemax) > 0


def test_many_threads_save_at_once(place: Place) -> None:
    def save(rank: int) -> None:
        for step in range(10):
            path = place.mine / f"rank-{rank}.tmp"
            path.write_bytes(bytes([rank, step]) * 10_000)
            path.rename(place.mine / f"rank-{rank}")

    threads = [threading.Thread(target=save, args=(rank,)) for rank in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    place.publish()
    for rank in range(8):
        wanted = bytes([rank, 9]) * 10_000
        assert (place.mine / f"rank-{rank}").read_bytes() == wanted
        theirs = place.source / f"rank-{rank}"
        eventually(lambda t=theirs, w=wanted: t.read_bytes() == w, str(theirs))
