"""Homes in one process: what a question costs, who is asked, and what a dead home costs."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from peering import SECRET, address_of, store_at

from cachexfs.config import Member
from cachexfs.peers import messages as m
from cachexfs.peers.greeting import Identity
from cachexfs.peers.home import Home, Request
from cachexfs.peers.homes import HOMES, WAIT_S, Homes
from cachexfs.peers.register import Key
from cachexfs.peers.server import PeerServer

pytestmark = pytest.mark.trio
VOLUME = "/lustre"


class Town:
    """Members that are homes, and a mount that asks them."""

    def __init__(self, nursery: trio.Nursery, base: Path, stack: ExitStack) -> None:
        self._nursery = nursery
        self._base = base
        self._stack = stack
        self.members: list[Member] = []
        self.servers: dict[str, PeerServer] = {}
        self.scopes: dict[str, trio.CancelScope] = {}
        self.superseded: list[tuple[int, m.Entry]] = []
        self.back: list[str] = []

    async def start(self, count: int) -> None:
        for index in range(count):
            await self.start_member(f"n{index}")

    async def start_member(self, name: str, port: int = 0) -> None:
        store = self._stack.enter_context(store_at(self._base / f"{name}-{port}"))
        server = self.servers[name] = PeerServer(store, name, SECRET)
        listeners = await trio.open_tcp_listeners(port, host="127.0.0.1")
        if not port:
            self.members.append(Member(name=name, address=address_of(listeners[0])))
        await self._nursery.start(self._serve, name, server, listeners)

    async def _serve(
        self,
        name: str,
        server: PeerServer,
        listeners: list[trio.SocketListener],
        task_status: trio.TaskStatus[None],
    ) -> None:
        with trio.CancelScope() as scope:
            self.scopes[name] = scope
            async with trio.open_nursery() as nursery:
                serve = partial(
                    trio.serve_listeners, server.handle, listeners, handler_nursery=nursery
                )
                await nursery.start(serve)
                task_status.started()

    async def until(self, condition: Callable[[], bool]) -> None:
        with trio.fail_after(10):
            while not condition():  # noqa: ASYNC110 - what others do, no event of ours
                await trio.sleep(0.02)

    def mount(self, name: str) -> Homes:
        return Homes(
            VOLUME, self.members, Identity(name, SECRET), self._nursery,
            lambda directory, entry: self.superseded.append((directory, entry)), self.back.append,
        )  # fmt: skip


@pytest.fixture
async def town(nursery: trio.Nursery, tmp_path: Path) -> AsyncIterator[Town]:
    with ExitStack() as stack:
        made = Town(nursery, tmp_path, stack)
        yield made
        nursery.cancel_scope.cancel()


def entry(name: bytes, owner: str, stamp: int) -> m.Entry:
    replica = m.Replica(
        volume=VOLUME, path=name, kind="file", owner=owner, version=stamp, closed_at_ns=stamp
    )
    return m.Entry(name=name, stamp=stamp, replica=replica)


@pytest.mark.parametrize("count", [2, 4, 16, 64])
async def test_a_close_and_a_miss_cost_the_same_in_any_cluster(
    town: Town, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cachexfs.peers.homes.NEGATIVE_S", 60.0)
    monkeypatch.setattr("cachexfs.peers.homes.WAIT_S", 60.0)  # a busy machine makes no home dead
    await town.start(count)
    writer, reader = town.mount("writer"), town.mount("reader")
    for directory in range(5):
        await writer.register(directory, [entry(b"f", "writer", 1)])
        for _ in range(3):  # once it is not there, that is believed for a moment
            await reader.find(directory, b"nothing", on_source=False)
        assert await reader.find(directory, b"f", on_source=False) == entry(b"f", "writer", 1)
    assert writer.sent == 5 * HOMES
    assert reader.sent == 2 * 5 * HOMES


async def test_a_quiet_directory_is_not_asked_about_each_name(town: Town) -> None:
    await town.start(3)
    reader = town.mount("reader")
    for index in range(100):
        await reader.find(1, b"f%d" % index, on_source=True)
    assert reader.sent <= 10 * HOMES


async def test_one_dead_home_delays_once_and_the_other_answers(town: Town) -> None:
    await town.start(2)
    writer, reader = town.mount("writer"), town.mount("reader")
    await writer.register(1, [entry(b"f", "writer", 1)])
    town.scopes["n0"].cancel()
    begun = trio.current_time()
    await writer.register(1, [entry(b"g", "writer", 2)])
    assert await reader.find(1, b"f", on_source=False) is not None
    assert trio.current_time() - begun < 2 * WAIT_S + 0.3
    begun = trio.current_time()
    for index in range(20):
        await writer.register(1, [entry(b"h%d" % index, "writer", 2)])
    assert trio.current_time() - begun < WAIT_S
    assert len(await reader.all_in(1)) == 22


async def test_a_node_that_was_stopped_itself_takes_no_home_for_dead(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    await town.start(2)
    writer, answer, stops_s = town.mount("writer"), Home.answer, [0.0, WAIT_S + 0.2]
    await writer.register(1, [entry(b"f", "writer", 1)])

    def stopped(*arguments: Any) -> m.Message:
        time.sleep(stops_s.pop() if stops_s else 0.0)  # all that is in this loop
        return answer(*arguments)

    monkeypatch.setattr(Home, "answer", stopped)
    assert (await writer.register(1, [entry(b"g", "writer", 1)])).homes == HOMES
    assert not any(writer.is_dead(member.name) for member in town.members)


async def test_a_connection_that_ended_while_nobody_looked_is_no_dead_home(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive, ends = trio.SocketStream.receive_some, list[int]()

    async def ending(stream: trio.SocketStream, count: int | None = None) -> bytes:
        """The home closes it as a question comes: it has not heard of the node for too long."""
        data = await receive(stream, count)
        is_home = stream.socket.getsockname()[1] in ends
        if is_home and data:
            ends.clear()
            await stream.aclose()
            return b""
        return bytes(data)

    monkeypatch.setattr(trio.SocketStream, "receive_some", ending)
    await town.start(2)
    writer = town.mount("writer")
    await writer.register(1, [entry(b"f", "writer", 1)])
    ends.append(int(town.members[0].address.rpartition(":")[2]))
    assert (await writer.register(1, [entry(b"g", "writer", 1)])).homes == HOMES
    assert not ends and not writer.is_dead("n0")


async def test_a_home_that_comes_back_is_noticed(town: Town) -> None:
    await town.start(2)
    writer = town.mount("writer")
    await writer.register(1, [entry(b"f", "writer", 1)])
    town.scopes["n0"].cancel()
    await writer.register(1, [entry(b"g", "writer", 2)])
    assert writer.is_dead("n0")
    await town.start_member("n0", int(town.members[0].address.rpartition(":")[2]))
    await town.until(lambda: bool(town.back))
    assert town.back == ["n0"] and not writer.is_dead("n0")
    assert len(town.servers["n0"].home.register) == 0  # whoever is told registers again
    await writer.register(1, [entry(b"f", "writer", 1)])
    assert len(town.servers["n0"].home.register) == 1


async def test_who_is_overtaken_is_told(town: Town) -> None:
    await town.start(3)
    a, b = town.mount("a"), town.mount("b")
    await a.register(1, [entry(b"f", "a", 5)])
    assert (await b.register(1, [entry(b"f", "b", 4)])).beaten_by[b"f"].rank == (5, "a")
    assert not (await b.register(1, [entry(b"f", "b", 6)])).beaten_by
    await town.until(lambda: bool(town.superseded))
    assert town.superseded[0] == (1, entry(b"f", "b", 6))
    assert (await a.register(1, [entry(b"f", "a", 5)])).beaten_by[b"f"].rank == (6, "b")


async def test_a_long_listing_comes_whole(town: Town) -> None:
    await town.start(2)
    writer, reader = town.mount("writer"), town.mount("reader")
    names = [os.urandom(100).replace(b"/", b"_").replace(b"\0", b"_") for _ in range(3000)]
    for begin in range(0, 3000, 500):
        await writer.register(1, [entry(name, "writer", 1) for name in names[begin : begin + 500]])
    assert (await reader.all_in(1)).keys() == set(names)
    await writer.forget(1, [(name, 1) for name in names[:1000]])
    assert (await reader.all_in(1)).keys() == set(names[1000:])


async def test_what_no_honest_node_sends_is_refused(town: Town) -> None:
    await town.start(1)
    homes = town.mount("a")
    for wrong in (b"", b"a/b", b"a\0", b"n" * 256):
        bad = m.Entry(name=wrong, stamp=1, replica=entry(b"f", "a", 1).replica)
        assert (await homes.register(1, [bad])).beaten_by == {}
    await homes.register(1, [entry(b"f%d" % i, "a", 1) for i in range(2000)])
    assert await homes.all_in(1) == {}


async def test_a_home_that_was_silent_learns_what_was_settled_meanwhile(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    await town.start(2)
    writer, register = town.mount("writer"), town.servers["n0"].home.register
    await writer.register(1, [entry(b"f", "writer", 1), entry(b"g", "writer", 1)])
    answer, asked = Home.answer, list[object]()

    def late(home: Home, request: Request, *others: Any) -> m.Message:
        """It carries everything out, and its answers do not arrive."""
        asked.append(request)
        return answer(home, request, *others) if is_heard or home.register is not register else None

    is_heard = False
    monkeypatch.setattr(Home, "answer", late)
    with monkeypatch.context() as patch:
        patch.setattr(register, "forget", lambda *what: None)  # nor is it told
        await writer.forget(1, [(b"f", 1)])
    assert writer.is_dead("n0") and register.count_in(Key(VOLUME, 1)) == 2
    is_heard = True
    await town.until(lambda: register.count_in(Key(VOLUME, 1)) == 1)
    assert [e.name for e in (await town.mount("reader").all_in(1)).values()] == [b"g"]
