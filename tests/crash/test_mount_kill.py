"""The mount's daemon dies by kill -9 under a writer; what the writer was promised is there.

The writer puts a file on its list only after its fsync (or close) returned, and a deletion before
it begins and after it returned. Then the daemon dies, the mount is made again by hand, and the list
is held against what is there.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cluster_of_nodes import Node, eventually, nodes
from tests.cluster_of_nodes import listed as names_in

ROUNDS = 20
SEED = 20240229

WRITER = """
import hashlib, os, random, sys
directory, seed, promise = sys.argv[1], int(sys.argv[2]), sys.argv[3]
rng = random.Random(seed)
kept = []

def say(*words):
    sys.stdout.write(" ".join(words) + "\\n")
    sys.stdout.flush()

def write(name):
    data = rng.randbytes(rng.choice((0, 10, 5_000, 200_000, 3_000_000)))
    temporary = rng.random() < 0.5
    path = os.path.join(directory, name)
    with open(path + ".tmp" if temporary else path, "wb") as file:
        for begin in range(0, len(data), 70_000):
            file.write(data[begin:begin + 70_000])
        if promise == "fsync":
            file.flush()
            os.fsync(file.fileno())
    if temporary:
        os.rename(path + ".tmp", path)
    say("wrote", name, str(len(data)), hashlib.sha256(data).hexdigest())
    kept.append(name)

index = 0
try:
    say("ready")
    while True:
        if kept and rng.random() < 0.2:
            name = kept.pop(rng.randrange(len(kept)))
            say("deletes", name)
            os.unlink(os.path.join(directory, name))
            say("deleted", name)
        elif kept and rng.random() < 0.2:
            name = kept.pop(rng.randrange(len(kept)))
            say("deletes", name)
            write(name)
        else:
            index += 1
            write(f"{seed}-{index}")
except OSError as error:
    say("error", str(error.errno))
"""


def listed(said: str) -> tuple[dict[str, tuple[int, str]], set[str]]:
    """What the writer was promised (name -> size, sha256), and what it deleted for good."""
    promised: dict[str, tuple[int, str]] = {}
    deleted: set[str] = set()
    for line in said.splitlines():
        match line.split():
            case ["wrote", name, size, digest]:
                promised[name] = (int(size), digest)
                deleted.discard(name)
            case ["deletes", name]:
                promised.pop(name, None)
            case ["deleted", name]:
                deleted.add(name)
    return promised, deleted


def check(at: Path, promised: dict[str, tuple[int, str]], deleted: set[str]) -> None:
    """Every promised file is there, whole; nothing deleted came back."""
    for name, (size, digest) in promised.items():
        data = (at / name).read_bytes()
        assert len(data) == size, f"{name}: {len(data)} bytes of {size}"
        assert hashlib.sha256(data).hexdigest() == digest, f"{name} is not what was written"
    assert not deleted & set(os.listdir(at)), "a deleted file came back"


@pytest.mark.timeout(240)
@pytest.mark.fuse
@pytest.mark.parametrize("level", ["captured", "replicated"])
def test_what_was_promised_survives_kill_9(tmp_path: Path, level: str) -> None:
    rng = random.Random(f"{SEED} {level}")
    print(f"seed {SEED}")
    with nodes(tmp_path, "ab", extra=f'[mount]\nfsync = "{level}"\n') as (a, b):
        b.start_peer()
        a.mount()
        promised: dict[str, tuple[int, str]] = {}
        deleted: set[str] = set()
        for round_ in range(ROUNDS // 2):
            promise = rng.choice(("fsync", "close"))
            said = one_round(a, rng, rng.randrange(1 << 30), promise)
            new, gone = listed(said)
            promised.update(new)
            deleted |= gone
            a.mount()
            print(f"round {round_}: {promise}, {len(new)} files, {len(gone)} deleted")
            check(a.mountpoint, promised, deleted)
            assert a.report()["files"]["lost"] == 0
        a.umount()
        check(a.source, promised, deleted)


def one_round(a: Node, rng: random.Random, seed: int, promise: str) -> str:
    """Kill the daemon under a writer; returns what the writer said."""
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(a.mountpoint), str(seed), promise],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0.05, 0.8))
        a.kill_daemon()
        said, _ = writer.communicate(timeout=20)
    finally:
        writer.kill()
        writer.wait()
    a.detach()
    assert said.splitlines()[-1] in ("error 107", "error 103"), said[-200:]
    return said


@pytest.mark.fuse
def test_open_files_that_were_fsynced_survive_with_what_was_fsynced(tmp_path: Path) -> None:
    with nodes(tmp_path, "ab", extra='[mount]\nfsync = "captured"\ndata_path = "portable"\n') as (
        a,
        b,
    ):
        b.start_peer()
        a.mount()
        fd = os.open(a.mountpoint / "file", os.O_CREAT | os.O_WRONLY)
        os.write(fd, b"promised")
        os.fsync(fd)
        os.write(fd, b" and not")
        never = os.open(a.mountpoint / "never", os.O_CREAT | os.O_WRONLY)
        os.write(never, b"not closed, not fsynced")
        a.kill_daemon()
        for descriptor in (fd, never):
            with pytest.raises(OSError):
                os.write(descriptor, b"x")
            with pytest.raises(OSError):
                os.close(descriptor)
        a.detach()
        a.mount()
        assert (a.mountpoint / "file").read_bytes().startswith(b"promised")
        assert os.listdir(a.mountpoint) == ["file"]
        a.umount()
        assert (a.source / "file").read_bytes().startswith(b"promised")


@pytest.mark.fuse
def test_a_second_kill_while_it_recovers(tmp_path: Path) -> None:
    with nodes(tmp_path, "ab", extra='[mount]\nfsync = "captured"\n') as (a, _):
        a.mount()
        for index in range(30):
            (a.mountpoint / f"f{index}").write_bytes(b"%d" % index * 50_000)
        for _ in range(4):
            a.kill_mount()
            a.mount()
        a.umount()
        for index in range(30):
            assert (a.source / f"f{index}").read_bytes() == b"%d" % index * 50_000
        assert not [name for name in names_in(a.source) if name.startswith(".cachexfs")]


@pytest.mark.fuse
def test_the_rename_of_a_directory_survives_with_what_is_in_it(tmp_path: Path) -> None:
    with nodes(tmp_path, "ab") as (a, b):
        b.start_peer()
        a.mount()
        for round_ in range(3):
            temporary = a.mountpoint / f"tmp-{round_}"
            temporary.mkdir()
            for index in range(20):
                (temporary / f"f{index}").write_bytes(b"%d" % index * 10_000)
            temporary.rename(a.mountpoint / f"final-{round_}")
            a.kill_mount()
            a.mount()
            assert sorted(os.listdir(a.mountpoint)) == [f"final-{r}" for r in range(round_ + 1)]
            assert len(os.listdir(a.mountpoint / f"final-{round_}")) == 20
        eventually(lambda: a.report()["state"] == "ok")
        a.umount()
        for path in a.source.glob("final-*/f*"):
            assert path.read_bytes() == path.name[1:].encode() * 10_000
        assert len(list(a.source.glob("final-*/f*"))) == 60
