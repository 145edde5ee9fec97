"""What training frameworks do around their files, step by step as their sources do it."""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import pickle
import shutil
import struct
import threading
from pathlib import Path

import pytest

from tests.writers.place import Place

pytestmark = pytest.mark.fuse

BLOCK = 4096


def payload(seed: int, size: int = 300_000) -> bytes:
    return (b"%08d" % seed) * (size // 8)


def write(path: Path, data: bytes, *, fsync: bool = False) -> None:
    with path.open("wb") as file:
        file.write(data)
        if fsync:
            file.flush()
            os.fsync(file.fileno())


def test_lightning_copies_a_temporary_file_by_sendfile(place: Place, tmp_path: Path) -> None:
    for step in range(3):
        local = tmp_path / "local.ckpt"
        local.write_bytes(payload(step, 1_000_000))
        local.chmod(0o640)
        os.utime(local, ns=(10**18 + step, 10**18 + step))
        target = place.path / f"step={step}.ckpt"
        with local.open("rb") as source, target.open("wb") as copy:
            offset = 0
            while sent := os.sendfile(copy.fileno(), source.fileno(), offset, 64 << 10):
                offset += sent
        shutil.copystat(local, target)
        last = place.path / "last.ckpt"
        if last.is_symlink():
            last.unlink()
        last.symlink_to(target.name)
    shutil.copy2(local, place.path / "last-copy.ckpt")
    assert (place.path / "last.ckpt").read_bytes() == payload(2, 1_000_000)
    assert target.stat().st_mode & 0o777 == 0o640 and target.stat().st_mtime_ns == 10**18 + 2
    place.check()
    assert (place.a.source / place.name / "last.ckpt").read_bytes() == payload(2, 1_000_000)


def test_trainer_keeps_the_last_two_checkpoints(place: Place) -> None:
    for step in range(1, 6):
        checkpoint = place.path / f"checkpoint-{step}"
        checkpoint.mkdir()
        write(checkpoint / "model.safetensors", payload(step))
        write(checkpoint / "optimizer.pt", payload(step + 100))
        write(checkpoint / "rng_state.pth", payload(step, 80))
        (checkpoint / "trainer_state.json").write_text(json.dumps({"global_step": step}))
        for old in sorted(place.path.glob("checkpoint-*"))[:-2]:
            shutil.rmtree(old)
    assert sorted(os.listdir(place.path)) == ["checkpoint-4", "checkpoint-5"]
    place.check()


def test_rmtree_while_somebody_reads(place: Place) -> None:
    checkpoint = place.path / "checkpoint-1"
    checkpoint.mkdir()
    for part in range(5):
        write(checkpoint / f"part-{part}", payload(part))
    with (checkpoint / "part-0").open("rb") as reader:
        shutil.rmtree(checkpoint)
        assert reader.read() == payload(0)
    assert not checkpoint.exists()
    write(place.path / "kept", b"kept")
    place.check()


def test_deepspeed_rewrites_latest_in_place(place: Place) -> None:
    for step in range(5):
        directory = place.path / f"global_step{step}"
        directory.mkdir()
        for rank in range(2):
            write(directory / f"mp_rank_{rank:02d}_model_states.pt", payload(step * 10 + rank))
        with (place.path / "latest").open("w") as file:
            file.write(directory.name)
        assert (place.path / "latest").read_text() == directory.name
    place.check()
    assert (place.a.source / place.name / "latest").read_text() == "global_step4"


def test_deepspeed_fast_writer_direct_and_then_an_appended_tail(place: Place) -> None:
    body, tail = payload(1, 8 * BLOCK), payload(2, 1000)
    buffer = mmap.mmap(-1, len(body))
    buffer.write(body)
    for at in (place.path, place.plain):
        for _ in range(2):  # the second time over the first, without O_TRUNC
            fd = os.open(at / "fast.pt", os.O_CREAT | os.O_WRONLY | os.O_DIRECT, 0o644)
            assert os.write(fd, buffer) == len(body)
            os.close(fd)
        os.truncate(at / "fast.pt", len(body))
        fd = os.open(at / "fast.pt", os.O_WRONLY | os.O_APPEND)
        assert os.write(fd, tail) == len(tail)
        os.close(fd)
    buffer.close()
    assert (place.path / "fast.pt").read_bytes() == body + tail
    place.check()


def sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    os.close(fd)


def lock(fd: int) -> None:
    """F_OFD_SETLKW on the whole file, as tensorstore takes it."""
    request = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    fcntl.fcntl(fd, getattr(fcntl, "F_OFD_SETLKW", 38), request)


def test_orbax_nested_temporary_directories_and_locks(place: Place) -> None:
    for step in range(2):
        temporary = place.path / f"{step}.orbax-checkpoint-tmp-{step}"
        item = temporary / "default.orbax-checkpoint-tmp-1"
        item.mkdir(parents=True)
        sync_directory(place.path)
        for key in ("manifest.ocdbt", "d-0001", "d-0002"):
            path = item / f"{key}.__lock"
            fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            lock(fd)
            again = path.stat()
            assert (again.st_dev, again.st_ino) == (os.fstat(fd).st_dev, os.fstat(fd).st_ino)
            os.ftruncate(fd, 0)
            os.write(fd, payload(step))
            os.fsync(fd)
            path.rename(item / key)
            os.close(fd)
            sync_directory(item)
        write(item / "_METADATA", b"{}", fsync=True)
        item.rename(temporary / "default")
        sync_directory(temporary)
        temporary.rename(place.path / str(step))
        sync_directory(place.path)
    assert sorted(os.listdir(place.path)) == ["0", "1"]
    place.check()
    inodes = {path: path.stat().st_ino for path in place.path.rglob("*")}
    assert inodes == {path: path.stat().st_ino for path in place.path.rglob("*")}


def test_the_inode_number_stays_from_capture_to_durability(place: Place) -> None:
    write(place.path / "file", payload(1))
    before = (place.path / "file").stat().st_ino
    place.a.wait("durable", place.name)
    assert (place.path / "file").stat().st_ino == before
    with (place.path / "file").open("rb") as opened:
        assert os.fstat(opened.fileno()).st_ino == before
    place.check()


def test_a_directory_of_a_thousand_files_is_renamed_with_some_open(place: Place) -> None:
    (place.path / "tmp").mkdir()
    for index in range(1000):
        (place.path / "tmp" / f"f{index:04d}").write_bytes(b"%d" % index)
    with (place.path / "tmp" / "open").open("wb") as still_open:
        still_open.write(b"before ")
        still_open.flush()
        (place.path / "tmp").rename(place.path / "final")
        still_open.write(b"and after")
    assert (place.path / "final" / "open").read_bytes() == b"before and after"
    assert len(os.listdir(place.path / "final")) == 1001
    place.check()


def test_megatron_threads_pointer_in_place_and_rmtree_by_another(place: Place) -> None:
    removing: list[threading.Thread] = []
    for step in range(4):
        directory = place.path / f"iter_{step:07d}"
        directory.mkdir()
        writers = [
            threading.Thread(
                target=write,
                args=(directory / f"__0_{part}.distcp", payload(step * 10 + part)),
                kwargs={"fsync": True},
            )
            for part in range(4)
        ]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        shards = sorted(shard.name for shard in directory.iterdir())
        write(directory / ".metadata", pickle.dumps(shards))
        write(directory / "metadata.json", b'{"sharded_backend": "torch_dist"}')
        with (place.path / "latest_checkpointed_iteration.txt").open("w") as pointer:
            pointer.write(str(step))
        if step >= 2:
            old = place.path / f"iter_{step - 2:07d}"
            removing.append(threading.Thread(target=shutil.rmtree, args=(old,)))
            removing[-1].start()
    for thread in removing:
        thread.join()
    assert (place.path / "latest_checkpointed_iteration.txt").read_text() == "3"
    assert sorted(p.name for p in place.path.iterdir() if p.is_dir()) == [
        "iter_0000002", "iter_0000003",
    ]  # fmt: skip
    place.check()


def test_nvidia_local_checkpoints_rename_dirty_files(place: Place) -> None:
    for step in range(3):
        dirty = place.path / f"iter_{step}_0_local.pt.dirty"
        fd = os.open(dirty, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        os.write(fd, payload(step))
        os.close(fd)
        dirty.rename(place.path / f"iter_{step}_0_local.pt")
        for old in sorted(place.path.glob("*.pt"))[:-1]:
            old.unlink()
    assert os.listdir(place.path) == ["iter_2_0_local.pt"]
    place.check()


def test_written_renamed_without_close_and_written_on(place: Place) -> None:
    with (place.path / "tmp").open("wb") as file:
        file.write(payload(1))
        file.flush()
        (place.path / "tmp").rename(place.path / "final")
        file.write(payload(2))
    assert (place.path / "final").read_bytes() == payload(1) + payload(2)
    place.check()


def test_fifty_saves_that_keep_the_last_one(place: Place) -> None:
    for step in range(50):
        with (place.path / "checkpoint").open("wb") as file:
            file.write(payload(step, 100_000))
    place.check()
    assert (place.a.source / place.name / "checkpoint").read_bytes() == payload(49, 100_000)
