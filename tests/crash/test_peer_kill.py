"""A peer dies by kill -9, again and again; what it has acknowledged is there."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import trio

from cachexfs.durability.checksum import CHUNK_BYTES, checksum
from cachexfs.peers.messages import Replica
from cachexfs.peers.orders import Order, Outcome, Put
from cachexfs.peers.reader import open_reader
from cachexfs.peers.sender import PeerLink

SECRET = "a secret of the cluster"
PEER = """
import sys, trio
from functools import partial
from pathlib import Path
from cachexfs import config, peerd
trio.run(partial(peerd.run, config.load(Path(sys.argv[1])), ready=lambda: print("up", flush=True)))
"""


class Daemon:
    """The real daemon in a process of its own, on one port and one store."""

    def __init__(self, directory: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        (directory / "secret").write_text(SECRET)
        (directory / "secret").chmod(0o600)
        self.config = directory / "c.toml"
        self.config.write_text(
            f'[node]\nname = "peer"\n[peer]\nlisten = "{self.address}"\n'
            f'store = "{directory}/store"\n[security]\nsecret_file = "{directory}/secret"\n'
        )
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, "-c", PEER, str(self.config)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None and self.process.stdout.readline() == "up\n"

    def stop(self, how: int = signal.SIGKILL) -> int:
        assert self.process is not None and self.process.stdout is not None
        self.process.send_signal(how)
        self.process.stdout.close()
        return self.process.wait(10)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path)
    made.start()
    yield made
    made.stop()


def content(seed: int) -> bytes:
    size = (0, 10, 70_000, CHUNK_BYTES, 5 * CHUNK_BYTES + 7)[seed % 5]
    return random.Random(seed).randbytes(size)


def opened(data: bytes) -> int:
    fd = os.memfd_create("content")
    os.write(fd, data)
    return fd


def put(seed: int) -> Put:
    data = content(seed)
    held = Replica(
        volume="v", path=b"%d" % seed, kind="file", owner="owner", version=1, closed_at_ns=1,
        size_bytes=len(data), crcs=checksum(data),
    )  # fmt: skip
    return Put(held, partial(opened, data))


@pytest.mark.trio
async def test_every_acknowledged_file_survives_kill_9(
    daemon: Daemon, nursery: trio.Nursery
) -> None:
    done: list[tuple[Order, Outcome]] = []
    link = PeerLink(
        "peer", daemon.address, "owner", SECRET.encode(),
        on_done=lambda order, outcome: done.append((order, outcome)),
    )  # fmt: skip
    puts = [put(seed) for seed in range(60)]
    for order in puts:
        link.submit(order)
    nursery.start_soon(link.run)
    for after_s in (0.05, 0.2, 0.1, 0.3):
        await trio.sleep(after_s)
        acknowledged = len(done)
        await trio.to_thread.run_sync(daemon.stop)
        await trio.to_thread.run_sync(daemon.start)
        await check(daemon.address, acknowledged)
    with trio.fail_after(40):
        while len(done) < len(puts):  # noqa: ASYNC110
            await trio.sleep(0.05)
    assert [order for order, _ in done] == puts
    assert {outcome.kind for _, outcome in done} == {"acked"}
    await check(daemon.address, len(puts))
    nursery.cancel_scope.cancel()


async def check(address: str, acknowledged: int) -> None:
    async with open_reader(address, "asker", SECRET.encode()) as reader:
        held = {replica.path: replica for replica in await reader.list("v")}
        for seed in range(acknowledged):
            chunks = [data async for _, data in reader.fetch(held[b"%d" % seed])]
            assert b"".join(chunks) == content(seed)


def test_the_daemon_stops_cleanly_when_asked(daemon: Daemon) -> None:
    assert daemon.stop(signal.SIGTERM) == 0
    daemon.start()


def test_a_second_daemon_says_what_is_taken(daemon: Daemon) -> None:
    second = subprocess.run(
        [sys.executable, "-c", PEER, str(daemon.config)], capture_output=True, text=True, timeout=20
    )
    assert second.returncode != 0 and "the port is taken" in second.stderr
    text = daemon.config.read_text().replace(daemon.address, "127.0.0.1:0")
    daemon.config.write_text(text)
    third = subprocess.run(
        [sys.executable, "-c", PEER, str(daemon.config)], capture_output=True, text=True, timeout=20
    )
    assert third.returncode != 0 and "is in use by another" in third.stderr


def test_a_node_without_a_store_is_told_so(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text('[node]\nname = "n"\n')
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", PEER, str(config)], capture_output=True, text=True, timeout=20
    )
    assert "has no [peer] section" in done.stderr and time.monotonic() - started < 10
