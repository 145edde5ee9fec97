"""Chunks that go ahead of their offer: used where they are right, gone where they are not."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import trio
from peering import SECRET, VOLUME, Owner, Wire, content_fd, put, serve, store_at

from cachexfs.durability.checksum import CHUNK_BYTES
from cachexfs.peers import messages as m
from cachexfs.peers.greeting import Identity, connect
from cachexfs.peers.orders import Put
from cachexfs.peers.reader import open_reader
from cachexfs.peers.store import Store
from cachexfs.peers.stream import BROKEN, Disconnected

pytestmark = pytest.mark.trio

BIG = os.urandom(6 * CHUNK_BYTES + 12345)
KEY = 7


def parts(store: Path) -> list[str]:
    """What is under way at a peer."""
    return os.listdir(store / "parts")


async def until(condition: Callable[[], bool]) -> None:
    """Files of another thread have no event to wait for."""
    with trio.fail_after(5):
        while not condition():  # noqa: ASYNC110
            await trio.sleep(0.01)


async def until_arrived(store: Path, chunks: int) -> None:
    def has_arrived() -> bool:
        sizes = [path.stat().st_size for path in (store / "parts").glob("*.draft")]
        return max(sizes, default=0) >= chunks * CHUNK_BYTES

    await until(has_arrived)


async def until_empty(store: Path) -> None:
    await until(lambda: not parts(store))


def offer(owner: Owner, content: bytes) -> tuple[Put, list[int]]:
    """The order for a file whose chunks went ahead, and what will be said of them."""
    found: list[int] = []
    sent = owner.link.ahead.take(KEY)
    return replace(put(b"big", content), sent=sent, on_changed=found.append), found


async def held_at(address: str) -> bytes:
    async with open_reader(address, "asker", SECRET, name="peer") as reader:
        (held,) = await reader.list(VOLUME)
        return b"".join([data async for _, data in reader.fetch(held)])


@pytest.mark.parametrize("compression", ["off", "auto", 3])
async def test_at_close_only_the_tail_and_what_changed_are_sent(
    nursery: trio.Nursery, tmp_path: Path, compression: str | int
) -> None:
    with store_at(tmp_path / "store") as store:
        address = await serve(nursery, store)
        wire = Wire(address)
        owner = Owner(await wire.start(nursery), compression=compression)
        nursery.start_soon(owner.link.run)
        owner.link.send_ahead(KEY, 0, 3, partial(content_fd, BIG))
        await until_arrived(tmp_path / "store", 3)
        owner.link.send_ahead(KEY, 0, 5, partial(content_fd, BIG))
        await until_arrived(tmp_path / "store", 5)
        before = wire.passed_bytes
        rewritten = b"header" + BIG[6:]
        order, found = offer(owner, rewritten)
        assert await owner.finish(order) == ["acked"]
        sent_after = wire.passed_bytes - before
        assert sent_after < 2 * CHUNK_BYTES + 12345 + 5_000
        assert found == [1]
        assert await held_at(address) == rewritten
        assert parts(tmp_path / "store") == []
        nursery.cancel_scope.cancel()


async def test_nothing_is_seen_of_a_draft_and_nothing_is_left_of_one_that_is_scrapped(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    with store_at(tmp_path / "store", limit_bytes=1 << 30) as store:
        owner = Owner(await serve(nursery, store))
        nursery.start_soon(owner.link.run)
        owner.link.send_ahead(KEY, 0, 3, partial(content_fd, BIG))
        await until_arrived(tmp_path / "store", 3)
        assert store.volumes() == []
        free = store.free_bytes
        owner.link.scrap(KEY)
        await until_empty(tmp_path / "store")
        assert store.free_bytes > free
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("content", [b"", b"small", bytes(CHUNK_BYTES), BIG[: 2 * CHUNK_BYTES - 1]])
async def test_a_file_that_ends_up_as_another_is_right_and_leaves_nothing(
    nursery: trio.Nursery, tmp_path: Path, content: bytes
) -> None:
    with store_at(tmp_path / "store") as store:
        address = await serve(nursery, store)
        owner = Owner(address)
        nursery.start_soon(owner.link.run)
        owner.link.send_ahead(KEY, 0, 3, partial(content_fd, BIG))
        await until_arrived(tmp_path / "store", 3)
        order, _ = offer(owner, content)
        assert await owner.finish(order) == ["acked"]
        assert await held_at(address) == content
        await until_empty(tmp_path / "store")
        nursery.cancel_scope.cancel()


async def test_a_broken_connection_costs_the_draft_and_nothing_else(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    with store_at(tmp_path / "store") as store:
        address = await serve(nursery, store)
        wire = Wire(address, cut_after=[2 * CHUNK_BYTES + 5_000])
        owner = Owner(await wire.start(nursery))
        nursery.start_soon(owner.link.run)
        owner.link.send_ahead(KEY, 0, 5, partial(content_fd, BIG))
        await until(lambda: wire.connections == 2)
        await until_arrived(tmp_path / "store", 5)
        assert len(parts(tmp_path / "store")) == 1
        order, found = offer(owner, BIG)
        assert await owner.finish(order) == ["acked"]
        assert found == [0]
        assert await held_at(address) == BIG
        nursery.cancel_scope.cancel()


async def test_content_that_is_gone_at_its_turn_leaves_nothing(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    with store_at(tmp_path / "store") as store:
        owner = Owner(await serve(nursery, store))
        nursery.start_soon(owner.link.run)
        owner.link.send_ahead(KEY, 0, 3, partial(content_fd, BIG))
        await until_arrived(tmp_path / "store", 3)
        order, _ = offer(owner, BIG)
        assert await owner.finish(replace(order, open_content=lambda: None)) == ["dropped"]
        await until_empty(tmp_path / "store")
        nursery.cancel_scope.cancel()


async def test_a_peer_without_room_takes_nothing_ahead_and_evicts_nothing_for_it(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    with store_at(tmp_path / "store", 2 * CHUNK_BYTES) as store:
        address = await serve(nursery, store)
        owner = Owner(address)
        nursery.start_soon(owner.link.run)
        await owner.finish(put(b"held", bytes(CHUNK_BYTES)))
        owner.link.send_ahead(KEY, 0, 5, partial(content_fd, BIG))
        await trio.sleep(0.3)
        assert parts(tmp_path / "store") == []
        assert await held_at(address) == bytes(CHUNK_BYTES)
        order, _ = offer(owner, b"small")
        assert await owner.finish(order) == ["acked", "acked"]
        nursery.cancel_scope.cancel()


async def test_an_order_that_needs_the_room_of_a_draft_gets_it(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    with store_at(tmp_path / "store", 3 * CHUNK_BYTES) as store:
        owner = Owner(await serve(nursery, store))
        nursery.start_soon(owner.link.run)
        owner.link.send_ahead(KEY, 0, 2, partial(content_fd, BIG))
        await until_arrived(tmp_path / "store", 2)
        assert await owner.finish(put(b"other", bytes(3 * CHUNK_BYTES))) == ["acked"]
        assert parts(tmp_path / "store") == []
        owner.link.send_ahead(KEY, 0, 5, partial(content_fd, BIG))
        await trio.sleep(0.2)
        assert parts(tmp_path / "store") == []
        assert owner.link.state == "up"
        nursery.cancel_scope.cancel()


async def test_a_draft_that_a_crash_left_is_swept(tmp_path: Path) -> None:
    with store_at(tmp_path / "store") as store:
        draft = store.draft()
        assert draft is not None and store.keep_ahead(draft, 0, memoryview(bytes(CHUNK_BYTES)))
    assert len(parts(tmp_path / "store")) == 1
    Store(tmp_path / "store").close()
    assert parts(tmp_path / "store") == []


@pytest.mark.parametrize(
    ("frames", "sentence"),
    [
        ([m.Ahead(1, 1 << 40, CHUNK_BYTES)], "chunk 1099511627776 of 4194304 bytes sent ahead"),
        ([m.Ahead(1, 0, 7)], "chunk 0 of 7 bytes sent ahead"),
        ([m.Ahead(0, 0, CHUNK_BYTES)], "draft 0 comes after draft 0"),
        ([m.Ahead(2, 0, CHUNK_BYTES), m.Ahead(1, 0, CHUNK_BYTES)], "draft 1 comes after draft 2"),
        ([m.Ahead(n, 0, CHUNK_BYTES) for n in range(1, 99)], "more than 64 drafts at a time"),
    ],
)
async def test_a_member_that_breaks_the_rules_of_drafts_loses_its_connection_and_its_drafts(
    nursery: trio.Nursery,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    frames: list[m.Message],
    sentence: str,
) -> None:
    with store_at(tmp_path / "store") as store:
        address = await serve(nursery, store)
        stream, _, _ = await connect(address, Identity("odd", SECRET), b"s" * 16, "peer")
        with trio.fail_after(5), pytest.raises((Disconnected, *BROKEN)):
            for message in frames:
                await stream.send(message, b"damaged")
            while True:
                await stream.receive()
        await stream.aclose()
        assert sentence in caplog.text
        await until_empty(tmp_path / "store")
        nursery.cancel_scope.cancel()
