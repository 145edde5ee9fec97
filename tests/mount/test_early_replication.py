"""Replication that starts before the close: a writer is followed, and what it left is checked."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster_of_nodes import Node, eventually, nodes, run

pytestmark = pytest.mark.fuse

MIB = 1 << 20
SIZE_BYTES = 200 * MIB
CHUNKS = SIZE_BYTES // (4 * MIB)
CHASE = '[mount]\nfsync = "replicated"\n[replication]\nchase = true\n'
DATA = random.Random(5).randbytes(8 * MIB)


@pytest.fixture(params=["auto", "portable"])
def chased(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Node, Node]]:
    """A pair with replication that starts early, on both data paths."""
    extra = CHASE.replace("[mount]\n", f'[mount]\ndata_path = "{request.param}"\n')
    with nodes(tmp_path, "ab", extra=extra) as (a, b):
        b.start_peer()
        a.mount()
        eventually(lambda: a.report()["peers"][0]["state"] == "up")
        yield a, b


def write(fd: int, first_mib: int, last_mib: int, pace_s: float = 0.01) -> None:
    """Write so many MiB, as a program that computes in between."""
    for place in range(first_mib, last_mib, 4):
        block = place % 8 * MIB
        os.pwrite(fd, DATA[block : block + 4 * MIB], place * MIB)
        time.sleep(pace_s)


def whole() -> bytes:
    """What `write` makes of the whole file."""
    return DATA * (SIZE_BYTES // len(DATA))


def in_parts(b: Node) -> list[str]:
    """What is under way at the peer."""
    return os.listdir(b.store / "parts")


def drafted_bytes(b: Node) -> int:
    """The size of the largest file that is under way at the peer."""
    sizes = [path.stat().st_size for path in (b.store / "parts").iterdir()]
    return max(sizes, default=0)


def said(a: Node, name: str) -> tuple[int, int]:
    """Chunks of a file that were sent ahead, and again, as the daemon logs it at the offer."""
    pattern = re.compile(rf"{name}: (\d+) chunks were sent ahead, (\d+) of them again")
    found = eventually(lambda: pattern.search(a.log), f"a word about {name}")
    return int(found[1]), int(found[2])


def at_peer(a: Node, b: Node, target: Path, name: str) -> bytes:
    """The content that the peer gives back."""
    shutil.rmtree(target, ignore_errors=True)
    run("recover", "--to", target, "--from", f"127.0.0.1:{b.port}", "-c", a.config)
    return (target / name).read_bytes()


def test_after_the_close_only_the_tail_is_left_to_send(
    chased: tuple[Node, Node], tmp_path: Path
) -> None:
    a, b = chased
    fd = os.open(a.mountpoint / "large", os.O_RDWR | os.O_CREAT)
    write(fd, 0, SIZE_BYTES // MIB)
    os.close(fd)
    a.wait("replicated", "large")
    ahead, again = said(a, "large")
    assert ahead >= CHUNKS * 0.9 and again == 0
    assert at_peer(a, b, tmp_path / "back", "large") == whole()
    assert in_parts(b) == []


def test_a_header_that_is_written_last_is_sent_again(
    chased: tuple[Node, Node], tmp_path: Path
) -> None:
    a, b = chased
    fd = os.open(a.mountpoint / "large", os.O_RDWR | os.O_CREAT)
    write(fd, 0, 64)
    eventually(lambda: in_parts(b), "a draft at the peer")
    time.sleep(0.3)
    os.pwrite(fd, b"header", 0)
    os.fsync(fd)
    assert said(a, "large") == (15, 1)
    os.pwrite(fd, b"again", 6)
    write(fd, 64, 128)
    os.close(fd)
    a.wait("replicated", "large")
    expected = b"headeragain" + (DATA * 16)[11 : 128 * MIB]
    assert at_peer(a, b, tmp_path / "back", "large") == expected
    assert in_parts(b) == []


def test_the_next_daemon_follows_a_writer_that_outlived_the_last(
    chased: tuple[Node, Node], tmp_path: Path
) -> None:
    a, b = chased
    if a.report()["data_path"] != "passthrough":
        pytest.skip("the portable path ends with its daemon")
    fd = os.open(a.mountpoint / "large", os.O_RDWR | os.O_CREAT)
    write(fd, 0, 64)
    dead = a.pid()
    os.kill(dead, signal.SIGKILL)
    write(fd, 64, 128)
    eventually(lambda: a.pid() != dead, "another daemon")
    eventually(lambda: drafted_bytes(b) >= 120 * MIB, "a whole draft at the peer")
    os.close(fd)
    a.wait("replicated", "large")
    assert said(a, "large")[0] >= 30
    assert at_peer(a, b, tmp_path / "back", "large") == (DATA * 16)[: 128 * MIB]
    assert in_parts(b) == []


@pytest.mark.parametrize("how", ["unlink", "truncate"])
def test_a_file_that_is_given_up_before_its_close_leaves_nothing(
    chased: tuple[Node, Node], how: str
) -> None:
    a, b = chased
    path = a.mountpoint / "large"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    write(fd, 0, 64)
    eventually(lambda: in_parts(b), "a draft at the peer")
    if how == "unlink":
        path.unlink()
    else:
        os.ftruncate(fd, 5)
    eventually(lambda: not in_parts(b), "the end of the draft")
    os.close(fd)
    if how == "truncate":
        a.wait("replicated", "large")
    (a.mountpoint / "after").write_bytes(b"x")
    a.wait("replicated")
    assert in_parts(b) == []
    held = {p.stat().st_size for p in (b.store / "data").iterdir()}
    assert held == ({1} if how == "unlink" else {1, 5})


def test_commits_stay_in_order_behind_data_that_went_ahead(
    chased: tuple[Node, Node], tmp_path: Path
) -> None:
    a, b = chased
    fd = os.open(a.mountpoint / "large", os.O_RDWR | os.O_CREAT)
    write(fd, 0, 64)
    (a.mountpoint / "before").write_bytes(b"closed first")
    a.wait("replicated", "before")
    back = tmp_path / "back"
    run("recover", "--to", back, "--from", f"127.0.0.1:{b.port}", "-c", a.config)
    assert sorted(os.listdir(back)) == ["before"]
    os.close(fd)
    (a.mountpoint / "latest").write_bytes(b"large")
    a.wait("replicated", "latest")
    assert at_peer(a, b, back, "large") == (DATA * 8)[: 64 * MIB]


def test_a_writer_that_goes_back_all_the_time_is_not_followed_for_ever(
    chased: tuple[Node, Node], tmp_path: Path
) -> None:
    a, b = chased
    fd = os.open(a.mountpoint / "large", os.O_RDWR | os.O_CREAT)
    write(fd, 0, 64)
    time.sleep(0.3)
    for turn in range(3):
        for place in range(0, 64, 4):
            os.pwrite(fd, b"%d" % turn, place * MIB)
        os.fsync(fd)
        write(fd, 64 + turn * 16, 80 + turn * 16, pace_s=0.05)
    os.close(fd)
    a.wait("replicated", "large")
    assert len(re.findall("large: .* sent ahead", a.log)) == 1
    assert at_peer(a, b, tmp_path / "back", "large") == (a.mountpoint / "large").read_bytes()
    assert in_parts(b) == []
